//go:build linux

package pool_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// TestRefused: who does not prove to be of a group or a task gets nothing, and
// the node says so in its log and serves on.
func TestRefused(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{Groups: []pool.Group{{Name: "a", Key: key, Compute: 40, Memory: 50}, {Name: "b", Key: "another key of 16"}}})
	for _, c := range [][2]string{{"", ""}, {"a", ""}, {"a", "another key of 16"}, {"c", key}} {
		if _, err := pool.Dial(t.Context(), n.tcp, c[0], c[1]); fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("group %q: %v", c[0], err)
		}
	}
	client := dial(t, n.tcp)
	for _, c := range []struct {
		spec pool.Spec
		kind fault.Kind
		say  string
	}{
		{pool.Spec{Compute: 41, Memory: mib}, fault.Exhausted, "exceeds the quota of group a"},
		{pool.Spec{Compute: 1, Memory: 51 * mib}, fault.Exhausted, "exceeds the quota of group a"},
		{pool.Spec{Compute: 101, Memory: 5, Idle: -1}, fault.Invalid, "compute: 101 is not a percentage from 1 to 100; memory: 5 bytes"},
		{pool.Spec{Model: "no such model"}, fault.NotFound, "no device of the model"},
		{pool.Spec{Device: "opencl-99"}, fault.NotFound, `no device "opencl-99"`},
	} {
		if _, _, err := client.Run(c.spec); fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%+v: %v", c.spec, err)
		}
	}
	task, token, err := client.Run(pool.Spec{Compute: 10, Memory: 5 * mib})
	if err != nil {
		t.Fatal(err)
	}
	other, err := pool.Dial(t.Context(), n.tcp, "b", "another key of 16")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if tasks, err := other.Tasks(); err != nil || len(tasks) != 0 {
		t.Errorf("another group sees %v, %v", tasks, err)
	}
	if err := other.Stop(task.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("another group stops it: %v", err)
	}
	if err := other.Enable("opencl-0", false); fault.KindOf(err) != fault.Denied {
		t.Errorf("a group disables a device: %v", err)
	}
	for _, wrong := range [][2]string{{task.ID, strings.Repeat("00", 32)}, {strings.Repeat("0", 26), token}} {
		if out, err := program(t, n.tcp, wrong[0], wrong[1], "add").CombinedOutput(); err == nil || !strings.Contains(string(out), "no such task with this token") {
			t.Errorf("a wrong token: %v, %s", err, out)
		}
	}
	// Noise is refused.
	for _, noise := range []string{"", "YHDATA1\n" + task.ID + strings.Repeat("x", 32), "YHCTRL1\n{\"op\":\"run\"}\n", "YHCTRL1\n\xff\xff\n", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\x00", 100)} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.tcp, "tcp:"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, noise)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn) // until the node ends it
		_ = conn.Close()
	}
	if got := output(t, program(t, n.tcp, task.ID, token, "add")); !strings.HasPrefix(got, "sum ") {
		t.Errorf("after all that: %q", got)
	}
	if log := n.log.String(); strings.Count(log, "client refused") < 4 || strings.Count(log, "connection refused") < 3 {
		t.Errorf("refusals are not in the log:\n%s", log)
	}
}

// say connects to a node as a client does and says what one has said: all of it is
// said, and what the node says to that is returned when it has ended the connection.
func say(t *testing.T, at string, what []byte) []byte {
	t.Helper()
	_, address, _ := strings.Cut(at, ":")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	greeting := make([]byte, len(wire.Greeting)+wire.ChallengeSize)
	if _, err := io.ReadFull(conn, greeting); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(what); err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(conn) // or the node does not read all of it, and the connection is reset
	return said
}

// TestReplay: what proved that a client is of a group, or a program of a task, is
// written down by who reads along and said again, to the byte, while the group and
// the task are there: it does not fit the new challenge, and the log says so.
func TestReplay(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	var asked, said lines
	client, err := pool.Dial(t.Context(), through(t, n.tcp, &asked, io.Discard), "a", key)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	asked.await(t, "\"}\n")
	hello := asked.String() // and no request yet
	task, token, err := client.Run(pool.Spec{Device: "opencl-0", Compute: 10, Memory: 64 * mib})
	if err != nil {
		t.Fatal(err)
	}
	at := through(t, n.tcp, &said, io.Discard)
	output(t, program(t, at, task.ID, token, "add"))
	said.await(t, task.ID)
	eventually(t, func() bool { k, ok := taskOf(t, dial(t, n.unix), task.ID); return ok && k.Programs == 0 })
	for what, c := range map[string]struct {
		said   string
		begins string
		log    string
	}{
		"a group's proof":   {hello, wire.ControlHello + `{"op":"hello","group":"a","mac":"`, "client refused"},
		"and its request":   {asked.String(), wire.ControlHello + `{"op":"hello","group":"a","mac":"`, "client refused"},
		"a program's proof": {said.String()[:len(wire.DataGreeting)+wire.TaskIDSize+wire.MACSize], wire.DataGreeting + task.ID, "task_id=" + task.ID + ` reason="the pool node has no such task with this token`},
		"and all it said":   {said.String(), wire.DataGreeting + task.ID, "task_id=" + task.ID + ` reason="the pool node has no such task with this token`},
	} {
		if !strings.HasPrefix(c.said, c.begins) {
			t.Fatalf("%s: what was written down begins with %.100q", what, c.said)
		}
		before := strings.Count(n.log.String(), c.log)
		got := say(t, n.tcp, []byte(c.said))
		if len(got) > 0 && !bytes.Contains(got, []byte("may not use the pool node")) && (len(got) < wire.AnswerSize || binary.LittleEndian.Uint16(got[8:]) != wire.OpRefused) {
			t.Errorf("%s, said again, is answered %q", what, got)
		}
		if now := strings.Count(n.log.String(), c.log); now != before+1 {
			t.Errorf("%s, said again: the log tells of %d refusals, want one:\n%s", what, now-before, n.log)
		}
		k, ok := taskOf(t, dial(t, n.unix), task.ID)
		if !ok || k.Programs != 0 {
			t.Errorf("%s, said again: %+v", what, k)
		}
	}
	if tasks, err := dial(t, n.unix).Tasks(); err != nil || len(tasks) != 1 {
		t.Errorf("tasks are %+v, %v", tasks, err)
	}
	output(t, program(t, n.tcp, task.ID, token, "add")) // who has the token is let in
}
