/* What functions take is of no matter here. */
#define YR_NAMES
#include "stubs.h"
#include "table.h"

#define DECLARE(base, symbol, since, own) extern void symbol(void), own(void);
YR_FUNCTIONS(DECLARE)

#define ROW(base, symbol, since, own) {#base, symbol, own, since},
const yr_function yr_functions[] = {YR_FUNCTIONS(ROW)};
const size_t yr_functions_n = sizeof yr_functions / sizeof *yr_functions;
