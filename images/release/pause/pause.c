/*
 * The process that holds a pod's namespaces: it sleeps, reaps what is left to it, and ends when it is told to.
 * Its one option, -v, prints the version.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION "unknown"
#endif

int main(int argc, char **argv)
{
	static const int wanted[] = {SIGINT, SIGTERM, SIGCHLD};
	sigset_t set;
	unsigned i;

	if (argc > 1 && strcmp(argv[1], "-v") == 0) {
		puts("pause " VERSION);
		return EXIT_SUCCESS;
	}
	sigemptyset(&set);
	for (i = 0; i < sizeof wanted / sizeof *wanted; i++)
		sigaddset(&set, wanted[i]);
	/* Blocked signals wait for sigwaitinfo: no handler, and no signal is lost between two calls. */
	if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
		perror("pause: sigprocmask");
		return EXIT_FAILURE;
	}
	for (;;) {
		switch (sigwaitinfo(&set, NULL)) {
		case SIGINT:
		case SIGTERM:
			return EXIT_SUCCESS;
		case SIGCHLD:
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
		}
	}
}
