package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var lastLine = regexp.MustCompile(`^test accuracy (0\.[0-9]{4}|1\.0000) \(([0-9]+) of 360\)$`)

func output(t *testing.T, model, data string, epochs, seed int) []string {
	t.Helper()
	var out bytes.Buffer
	if err := run(&out, model, data, epochs, strconv.Itoa(seed)); err != nil {
		t.Fatalf("run(%s, seed %d): %v", model, seed, err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// Every replica a job may have learns well. Under the race detector, ten times
// slower and of no use to one goroutine, less training must do.
func TestAccuracy(t *testing.T) {
	seeds, epochs := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 0
	if raceEnabled || testing.Short() {
		seeds, epochs = []int{0, 9}, 20
	}
	for _, model := range []string{"mlp", "linear"} {
		for _, seed := range seeds {
			t.Run(fmt.Sprintf("%s seed %d", model, seed), func(t *testing.T) {
				t.Parallel()
				lines := output(t, model, "digits.csv", epochs, seed)
				m := lastLine.FindStringSubmatch(lines[len(lines)-1])
				if m == nil {
					t.Fatalf("last line %q does not match %s", lines[len(lines)-1], lastLine)
				}
				right, err := strconv.Atoi(m[2])
				if err != nil || m[1] != fmt.Sprintf("%.4f", float64(right)/360) {
					t.Errorf("%q: accuracy and count disagree", m[0])
				}
				if 100*right < 93*360 {
					t.Errorf("%d of 360 right, want at least 93 %%", right)
				}
				if progress := regexp.MustCompile(`(?m)^epoch +\d+ of \d+  loss \d+\.\d{4}`).FindAllString(strings.Join(lines, "\n"), -1); len(progress) < 3 {
					t.Errorf("%d progress lines, want at least 3:\n%s", len(progress), strings.Join(lines, "\n"))
				}
			})
		}
	}
}

func TestSameSeedSameRun(t *testing.T) {
	t.Parallel()
	a, b, other := output(t, "linear", "digits.csv", 3, 3), output(t, "linear", "digits.csv", 3, 3), output(t, "linear", "digits.csv", 3, 4)
	if strings.Join(a, "\n") != strings.Join(b, "\n") {
		t.Errorf("two runs of seed 3 differ:\n%s\n---\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	if strings.Join(a[1:], "\n") == strings.Join(other[1:], "\n") {
		t.Error("seeds 3 and 4 give the same run")
	}
}

// The digits set aside must not leak into training: with their labels spoiled,
// every line but the last stays the same.
func TestTestSetIsNotLearnedFrom(t *testing.T) {
	t.Parallel()
	const seed = 5
	data, err := os.ReadFile("digits.csv")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(data)), "\n")
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	rng := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, i := range order[trainSize:] {
		label := rows[i][len(rows[i])-1]
		rows[i] = rows[i][:len(rows[i])-1] + string('0'+(label-'0'+1)%10)
	}
	spoiled := filepath.Join(t.TempDir(), "digits.csv")
	if err := os.WriteFile(spoiled, []byte(strings.Join(rows, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	honest, fooled := output(t, "linear", "digits.csv", 5, seed), output(t, "linear", spoiled, 5, seed)
	last := len(honest) - 1
	if a, b := strings.Join(honest[:last], "\n"), strings.Join(fooled[:last], "\n"); a != b {
		t.Errorf("training changed with the labels of the digits set aside:\n%s\n---\n%s", a, b)
	}
	if m := lastLine.FindStringSubmatch(fooled[last]); m == nil || m[1] > "0.1000" {
		t.Errorf("with spoiled labels: %q, want an accuracy below 0.1", fooled[last])
	}
}

// The gradients are those of the loss: compared with finite differences.
func TestGradients(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	n, err := newNetwork("mlp", rng)
	if err != nil {
		t.Fatal(err)
	}
	s := sample{digit: 7}
	for i := range s.x {
		s.x[i] = rng.Float64()
	}
	n.learn(&s)
	loss := func() float64 { return -math.Log(n.predict(s.x[:])[s.digit]) }
	for name, l := range map[string]*layer{"hidden": n.hidden, "output": n.output} {
		for range 50 {
			i := rng.IntN(len(l.w))
			const h = 1e-6
			w := l.w[i]
			l.w[i] = w + h
			up := loss()
			l.w[i] = w - h
			down := loss()
			l.w[i] = w
			if want := (up - down) / (2 * h); math.Abs(want-l.grad[i]) > 1e-5 {
				t.Errorf("%s weight %d: gradient %g, want %g", name, i, l.grad[i], want)
			}
		}
	}
}

func TestRunRejects(t *testing.T) {
	t.Parallel()
	write := func(content string) string {
		path := filepath.Join(t.TempDir(), "d.csv")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	row := strings.Repeat("0,", pixels)
	for _, c := range []struct{ name, model, data, replica, want string }{
		{"an unknown model", "tree", "digits.csv", "0", `--model: want mlp or linear, got "tree"`},
		{"a bad replica index", "mlp", "digits.csv", "x", `YUNHE_REPLICA_INDEX: want a whole number, got "x"`},
		{"a missing file", "mlp", "nowhere.csv", "0", "nowhere.csv"},
		{"a pixel out of range", "mlp", write("17," + row[2:] + "3\n"), "0", "line 1, column 1: want a whole number from 0 to 16"},
		{"a label out of range", "mlp", write(row + "10\n"), "0", "column 65: want a whole number from 0 to 9"},
		{"too few digits", "mlp", write(row + "1\n"), "0", "want 1797 digits, got 1"},
		{"a short line", "mlp", write("1,2\n"), "0", "wrong number of fields"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(&out, c.model, c.data, 0, c.replica)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if strings.Contains(out.String(), "accuracy") {
				t.Errorf("printed an accuracy: %s", out.String())
			}
		})
	}
}

// The job file is the first thing a new user submits.
func TestJobNamesThisProgram(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("job.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range regexp.MustCompile(`"command": "([^"]*)"`).FindAllSubmatch(data, -1) {
		program, model, ok := strings.Cut(string(command[1]), " --model ")
		if !ok || program != "/examples/digits/train" {
			t.Errorf("command %q does not start /examples/digits/train --model", command[1])
		}
		if _, err := newNetwork(model, rand.New(rand.NewPCG(0, 0))); err != nil {
			t.Errorf("command %q: %v", command[1], err)
		}
	}
}
