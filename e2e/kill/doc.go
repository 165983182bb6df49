// Package kill tests what Yunhe promises about jobs while its processes are
// killed: one platform and three gateways run as processes of their own, and
// clients submit jobs all the while a killer ends the platform or a gateway
// with SIGKILL, again and again, and starts it anew.
//
// What must be true afterwards, on SQLite and on PostgreSQL:
//
//   - Every acknowledged job is there once, has ended, and in the state that
//     its commands and policies call for; no other job is there.
//   - Every run was executed exactly once: each told a server of the test
//     that it runs, from inside the sandbox, and its log has one line.
//   - There is one usage record for each run that started and no other; it
//     has the run's start and end, and the costs add up.
//   - The centers hold nothing, and no process logged an error.
//
// The same is checked when everything else fails too ([TestFaults], `make
// test-faults`), when roles are grouped otherwise ([TestGrouping]) and when a
// version replaces another ([TestUpgrade]). How soon another process does the work
// of one that was killed, and what that costs clients, is shown by [TestRecovery].
//
// Runs themselves are not killed: their runners survive a gateway's end, so no
// run may be lost. The random choices come from -kill.seed; the interleaving
// of processes does not.
package kill
