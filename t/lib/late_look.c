/* late_look.c - preloaded into a broker, makes each look at a full socket take 2 ms
 *
 * What two watchers of one handle see is then what it was at different times, as happens by chance
 * on a busy machine (flux_ensemble/queues/flux/relay.py).
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

int poll (struct pollfd *fds, nfds_t count, int timeout)
{
    static int (*real) (struct pollfd *, nfds_t, int);

    if (!real)
        real = (int (*) (struct pollfd *, nfds_t, int)) dlsym (RTLD_NEXT, "poll");
    int rc = real (fds, count, timeout);
    if (count == 1 && timeout == 0
        && (fds->events & POLLOUT) && !(fds->revents & POLLOUT))
        usleep (2000);
    return rc;
}
