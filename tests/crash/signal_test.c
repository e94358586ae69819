/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process is asked to end (public report B124): at work, while it opens, twice, all of its group. What was reported
 * written is there, whether it has a handler that closes the store or none. KVO_TEST_ROUNDS: how often, 40 unless
 * given.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rounds.h"

enum { WITHOUT_HANDLER, WHILE_OPENING, TO_THE_GROUP, CLOSES, CLOSES_AND_AGAIN, KINDS };

static known *asked_to_close; /* by the handler */

static void close_in_order(int number)
{
    (void)number;
    asked_to_close->close_now = 1;
}

/* As programs do: the first one closes in order, the second one ends at once. */
static void set_handler(const life *l)
{
    struct sigaction action = {.sa_handler = close_in_order, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    asked_to_close = l->known;
    sigaction(SIGTERM, &action, NULL);
}

static void lead_group(const life *l)
{
    (void)l;
    setpgid(0, 0);
}

static int end_one(life *l, int kind)
{
    int status = 0;
    l->prepare = kind >= CLOSES ? set_handler : kind == TO_THE_GROUP ? lead_group : NULL;
    pid_t child = rounds_write(l);
    rounds_wait_for(child, l, kind == WHILE_OPENING ? KNOWN_OPENING : KNOWN_WORKING);
    rounds_rest_us(rounds_draw(kind == WHILE_OPENING ? 10000 : 50000));
    kill(kind == TO_THE_GROUP ? -child : child, kind == TO_THE_GROUP ? SIGINT : SIGTERM);
    if (kind == CLOSES_AND_AGAIN) {
        rounds_rest_us(rounds_draw(10000));
        kill(child, SIGTERM);
    }
    waitpid(child, &status, 0);
    return status;
}

static bool ended_as_it_should(int kind, int status)
{
    bool closed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    int by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (kind == CLOSES_AND_AGAIN) /* the second one may come too late */
        return closed || by == SIGTERM;
    return kind == CLOSES ? closed : by == (kind == TO_THE_GROUP ? SIGINT : SIGTERM);
}

int main(void)
{
    char root[128], tiers[2][256];
    life lives[2];
    unsigned rounds = (unsigned)rounds_asked("KVO_TEST_ROUNDS", 40), ended[KINDS] = {0};
    rounds_begin();
    if (!rounds_directory(root, sizeof root, "signal"))
        return 1;
    for (unsigned i = 0; i < 2; i++) {
        snprintf(tiers[i], sizeof tiers[i], "%sdisk:%s/%u:64M", i ? "dram:4M," : "", root, i);
        lives[i] = (life){.tiers = tiers[i], .level = KVO_WRITTEN, .keeps_all = true, .known = known_new(),
                          .open = kvo_open};
        if (lives[i].known == NULL)
            return 1;
    }
    bool right = true;
    for (unsigned round = 0; round < rounds && right; round++) {
        life *l = &lives[round % 2];
        int kind = (int)(round / 2 % KINDS);
        l->seed = rounds_seed + round;
        int status = end_one(l, kind);
        ended[kind]++;
        if (!ended_as_it_should(kind, status))
            known_say(l->known, __LINE__, "kind %d: the process ended with status %x", kind, (unsigned)status);
        if (l->known->wrong_line == 0)
            rounds_check(l, rounds_draw(4) == 0, rounds_draw(4) == 0);
        right = l->known->wrong_line == 0;
        if (!right)
            printf("round %u, %s, kind %d: line %u: %s (KVO_TEST_SEED=%llu; the directory stays)\n", round, l->tiers,
                   kind, l->known->wrong_line, l->known->wrong, (unsigned long long)rounds_seed);
    }
    printf("%u ended by a signal, %u closed in order, %u asked twice\n",
           ended[WITHOUT_HANDLER] + ended[WHILE_OPENING] + ended[TO_THE_GROUP], ended[CLOSES], ended[CLOSES_AND_AGAIN]);
    printf("counted: %u signals, %llu payloads compared, %llu wrong bytes, %llu lost blocks\n", rounds,
           (unsigned long long)(lives[0].known->verified + lives[1].known->verified),
           (unsigned long long)(lives[0].known->wrong_bytes + lives[1].known->wrong_bytes),
           (unsigned long long)(lives[0].known->lost + lives[1].known->lost));
    if (right)
        rounds_remove(root);
    return !right;
}
