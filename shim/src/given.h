/* What a program is told of its slices: by its environment, or, where others start it, by
 * the file that YUNHE_POOL_FILE names, of lines NAME=VALUE. That is read once. */
#ifndef YUNHE_POOL_GIVEN_H
#define YUNHE_POOL_GIVEN_H

#include <stdbool.h>

bool yp_by_file(void);                           /* the program finds its slices by a file */
const char *yp_given(const char *name);          /* what that says; NULL: nothing, or there is none */
const char *yp_setting(const char *name);        /* what the environment says, or else the file */
const char *yp_setting_of(const char *name, int i); /* of the i-th slice: the first has the plain name, the second NAME_2, and so on */

#endif
