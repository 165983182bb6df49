// Package sent tells the signals that processes send to this one (kill, a
// supervisor's stop) from those of the kernel, as of a terminal's keys, which
// go to all of a terminal's processes.
//
// Go's signals come without who sent them. So the kernel calls a few
// instructions of this package first, which note what siginfo_t says (si_code)
// and go on to the runtime's handler. Where there are none for the machine, all
// signals are taken for a process's but those that terminals send.
package sent
