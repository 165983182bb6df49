package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

var update = flag.Bool("update", false, "rewrite the expected output of the scripts")

// TestScripts runs testdata/script/*.txtar: transcripts of the command line
// against a fresh fake platform.
//
// After the comment lines (#) come commands ($) and what they print: standard
// output as it is, standard error behind "2> ", then "exit N" unless N is 0.
// "$ env K=V" sets a variable for the rest, "$ fake VERB ..." moves the
// platform. Files follow in the txtar form; $WORK is the folder they are in,
// and "< FILE" gives one as standard input.
func TestScripts(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(data))
			if got == string(data) {
				return
			}
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s (-want +got), rewritten by go test -update:\n%s", path, cmp.Diff(strings.Split(string(data), "\n"), strings.Split(got, "\n")))
		})
	}
}

// runScript returns the script with the output it really gave.
func runScript(t *testing.T, script string) string {
	transcript, files := script, ""
	if i := strings.Index("\n"+script, "\n-- "); i >= 0 {
		transcript, files = script[:i], script[i:]
	}
	s := newScript(t)
	s.unpack(files)
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(transcript, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "$ "):
			if out.Len() > 0 && !strings.HasPrefix(lines[i-1], "#") {
				out.WriteByte('\n')
			}
			// What is printed with a # at its beginning is no comment of the script.
			out.WriteString(line + strings.ReplaceAll("\n"+s.run(strings.TrimPrefix(line, "$ ")), "\n#", "\n\\#"))
		case strings.HasPrefix(line, "#"):
			if i > 0 && !strings.HasPrefix(lines[i-1], "#") {
				out.WriteByte('\n')
			}
			out.WriteString(line + "\n")
		}
	}
	if files != "" {
		out.WriteString("\n")
	}
	return out.String() + files
}

type script struct {
	t      *testing.T
	server *fakeServer
	work   string
	env    map[string]string
}

func newScript(t *testing.T) *script {
	s := &script{t: t, server: startFake(t), work: t.TempDir()}
	s.env = map[string]string{
		"YUNHE_SERVER": s.server.url(), "YUNHE_KEY": fakeKey, "YUNHE_CONFIG": filepath.Join(s.work, "config.yaml"), "YUNHE_DATA": filepath.Join(s.work, "data"),
	}
	return s
}

func (s *script) unpack(files string) {
	name := ""
	content := map[string]string{}
	for _, line := range strings.SplitAfter(files, "\n") {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "-- "); ok && strings.HasSuffix(n, " --") {
			name = strings.TrimSuffix(n, " --")
			continue
		}
		content[name] += line
	}
	for name, data := range content {
		if name == "" {
			continue
		}
		path := filepath.Join(s.work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// run executes one command and returns its part of the transcript.
func (s *script) run(line string) string {
	words := s.words(line)
	switch words[0] {
	case "env":
		k, v, _ := strings.Cut(words[1], "=")
		s.env[k] = v
		return ""
	case "fake":
		s.fake(words[1:])
		return ""
	case "cat":
		data, err := os.ReadFile(words[1])
		if err != nil {
			s.t.Fatal(err)
		}
		return s.hide(string(data))
	case "yunhe":
	default:
		s.t.Fatalf("unknown command %q", line)
	}
	var in io.Reader = strings.NewReader("")
	if n := len(words); n > 2 && words[n-2] == "<" {
		data, err := os.ReadFile(filepath.Join(s.work, words[n-1]))
		if err != nil {
			s.t.Fatal(err)
		}
		in, words = bytes.NewReader(data), words[:n-2]
	}
	var stdout, stderr bytes.Buffer
	c := &cli{
		in: in, out: &stdout, err: &stderr, env: func(k string) string { return s.env[k] }, now: func() time.Time { return fakeNow },
		screen: func(io.Writer) (int, int, bool) { return 0, 0, false },
		retry:  backoff{first: time.Millisecond, most: 10 * time.Millisecond, limit: 10 * time.Second},
	}
	status := c.run(s.t.Context(), words[1:])
	out := s.hide(stdout.String())
	if out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n(no newline at the end)\n"
	}
	for line := range strings.Lines(s.hide(stderr.String())) {
		out += "2> " + strings.TrimSuffix(line, "\n") + "\n"
	}
	if status != 0 {
		out += fmt.Sprintf("exit %d\n", status)
	}
	return out
}

// hide replaces what differs from run to run.
func (s *script) hide(out string) string {
	return strings.NewReplacer(s.server.url(), "$SERVER", s.server.addr, "$ADDR", s.work, "$WORK").Replace(out)
}

// words splits a line as a shell does: spaces, quotes, $WORK and $SERVER.
func (s *script) words(line string) []string {
	var words []string
	var word strings.Builder
	var quote rune
	in := false
	flush := func() {
		if in {
			w := strings.ReplaceAll(word.String(), "$WORK", s.work)
			words = append(words, strings.ReplaceAll(w, "$SERVER", s.server.url()))
		}
		word.Reset()
		in = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, in = r, true
		case quote == 0 && r == ' ':
			flush()
		default:
			word.WriteRune(r)
			in = true
		}
	}
	flush()
	return words
}

// fake moves the platform: run JOB REPLICA CENTER, print JOB REPLICA TEXT,
// finish JOB REPLICA STATE [EXIT MESSAGE], stop.
func (s *script) fake(words []string) {
	api := s.server.api
	id := func() string { return "job_" + strings.Repeat("0", 26-len(words[1])) + words[1] }
	replica := func() int {
		n, err := strconv.Atoi(words[2])
		if err != nil {
			s.t.Fatal(err)
		}
		return n
	}
	switch words[0] {
	case "run":
		api.startRun(id(), replica(), words[3])
	case "print":
		api.print(id(), replica(), strings.ReplaceAll(words[3], `\n`, "\n"))
	case "finish":
		i := slices.IndexFunc(states(), func(st jobsv1.State) bool { return stateName(st) == words[3] })
		exit, message := 0, ""
		if len(words) > 5 {
			exit, _ = strconv.Atoi(words[4])
			message = words[5]
		}
		api.finish(id(), replica(), states()[i], int32(exit), message)
	case "stop":
		s.server.stop()
		s.t.Cleanup(s.server.start)
	default:
		s.t.Fatalf("unknown fake %q", words)
	}
}
