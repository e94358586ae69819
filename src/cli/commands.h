/* SPDX-License-Identifier: Apache-2.0 */
/* Each command takes the arguments behind its name and returns its exit code. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

int cli_replay_command(int argc, char **argv);
int cli_study_command(int argc, char **argv);
int cli_synth_command(int argc, char **argv);
int cli_stat_command(int argc, char **argv);
int cli_ls_command(int argc, char **argv);
int cli_audit_command(int argc, char **argv);
int cli_verify_command(int argc, char **argv);
int cli_rm_command(int argc, char **argv);
int cli_policy_command(int argc, char **argv);
int cli_bench_command(int argc, char **argv);

#endif
