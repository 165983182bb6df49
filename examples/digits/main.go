// Command train learns to read handwritten digits, from nothing: the first
// real job of a new compute network.
//
// It keeps three things true. A run is a function of its model and its seed
// (YUNHE_REPLICA_INDEX, so that replicas differ): the same seed gives the same
// weights on the same kind of processor. The accuracy is honest: 360 of the
// 1,797 digits are set aside before training and looked at once, after it; all
// choices (epochs, rates) are fixed in this file and do not depend on them.
// And it is a small guest: one thread, data and weights of a few MiB.
//
// It exits with 0 and ends with "test accuracy A (N of 360)", or with 1 and
// says why on standard error.
package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
)

// The data: 8×8 pixels of 0 to 16 and what was written.
const (
	pixels    = 64
	classes   = 10
	maxPixel  = 16
	trainSize = 1437
	testSize  = 360
)

type sample struct {
	x     [pixels]float64 // 0 to 1
	digit int
}

func main() {
	model := flag.String("model", "mlp", "mlp: one hidden layer of 32; linear: softmax regression")
	data := flag.String("data", "", "data file (default: digits.csv beside this program)")
	epochs := flag.Int("epochs", 0, "passes over the training digits (default: 100 for mlp, 300 for linear)")
	flag.Parse()
	if err := run(os.Stdout, *model, *data, *epochs, os.Getenv("YUNHE_REPLICA_INDEX")); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run trains a model, prints its progress to out and, last, its accuracy.
// 0 epochs means the model's own number.
func run(out io.Writer, model, path string, epochs int, replica string) error {
	seed := uint64(0)
	if replica != "" {
		n, err := strconv.ParseUint(replica, 10, 64)
		if err != nil {
			return fmt.Errorf("YUNHE_REPLICA_INDEX: want a whole number, got %q", replica)
		}
		seed = n
	}
	if path == "" {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		path = filepath.Join(filepath.Dir(exe), "digits.csv")
	}
	samples, err := load(path)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	rng.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
	train, test := samples[:trainSize], samples[trainSize:]
	n, err := newNetwork(model, rng)
	if err != nil {
		return err
	}
	if epochs < 0 {
		return fmt.Errorf("--epochs: want at least 1, got %d", epochs)
	}
	if epochs > 0 {
		n.epochs = epochs
	}
	fmt.Fprintf(out, "model %s, seed %d: %d digits to learn from, %d set aside\n", model, seed, len(train), len(test))
	n.train(out, train, rng)
	right := n.count(test)
	_, err = fmt.Fprintf(out, "test accuracy %.4f (%d of %d)\n", float64(right)/float64(len(test)), right, len(test))
	return err
}

// load reads all samples or says which line is wrong.
func load(path string) ([]sample, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.FieldsPerRecord = pixels + 1
	r.ReuseRecord = true
	var samples []sample
	for {
		record, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var s sample
		for i, field := range record {
			limit := maxPixel
			if i == pixels {
				limit = classes - 1
			}
			n, err := strconv.Atoi(field)
			if err != nil || n < 0 || n > limit {
				return nil, fmt.Errorf("%s: line %d, column %d: want a whole number from 0 to %d, got %q", path, len(samples)+1, i+1, limit, field)
			}
			if i == pixels {
				s.digit = n
			} else {
				s.x[i] = float64(n) / maxPixel
			}
		}
		samples = append(samples, s)
	}
	if len(samples) != trainSize+testSize {
		return nil, fmt.Errorf("%s: want %d digits, got %d", path, trainSize+testSize, len(samples))
	}
	return samples, nil
}

// layer is a fully connected layer with the state of its training.
type layer struct {
	in, out int
	w       []float64 // out rows of in weights and a bias
	v       []float64 // velocity of each weight
	grad    []float64 // summed over a batch
	y       []float64 // last output
	dy      []float64 // loss gradient at the output
}

func newLayer(in, out int, rng *rand.Rand) *layer {
	size := out * (in + 1)
	l := &layer{
		in: in, out: out, w: make([]float64, size), v: make([]float64, size), grad: make([]float64, size),
		y: make([]float64, out), dy: make([]float64, out),
	}
	scale := math.Sqrt(2 / float64(in)) // keeps the size of signals through ReLU
	for o := range out {
		for i := range in {
			l.w[o*(in+1)+i] = rng.NormFloat64() * scale
		}
	}
	return l
}

func (l *layer) forward(x []float64) []float64 {
	for o := range l.out {
		row := l.w[o*(l.in+1) : (o+1)*(l.in+1)]
		sum := row[l.in]
		for i, xi := range x {
			sum += row[i] * xi
		}
		l.y[o] = sum
	}
	return l.y
}

// backward adds to the gradients, given dy, and to dx if there is one.
func (l *layer) backward(x, dx []float64) {
	for o, d := range l.dy {
		if d == 0 {
			continue
		}
		grad := l.grad[o*(l.in+1) : (o+1)*(l.in+1)]
		for i, xi := range x {
			grad[i] += d * xi
		}
		grad[l.in] += d
		if dx != nil {
			row := l.w[o*(l.in+1):]
			for i := range dx {
				dx[i] += d * row[i]
			}
		}
	}
}

// step moves the weights against the gradient of a batch, with momentum.
func (l *layer) step(rate, momentum, decay float64, batch int) {
	for i, g := range l.grad {
		l.v[i] = momentum*l.v[i] - rate*(g/float64(batch)+decay*l.w[i])
		l.w[i] += l.v[i]
		l.grad[i] = 0
	}
}

// network is one or two layers with ReLU between and softmax at the end.
type network struct {
	hidden *layer // nil: a linear model
	output *layer
	epochs int
	rate   float64
}

// Training, the same for both models.
const (
	hiddenSize = 32
	batchSize  = 16
	momentum   = 0.9
	decay      = 1e-4
)

func newNetwork(model string, rng *rand.Rand) (*network, error) {
	switch model {
	case "mlp":
		hidden := newLayer(pixels, hiddenSize, rng)
		return &network{hidden: hidden, output: newLayer(hiddenSize, classes, rng), epochs: 100, rate: 0.02}, nil
	case "linear":
		return &network{output: newLayer(pixels, classes, rng), epochs: 300, rate: 0.02}, nil
	}
	return nil, fmt.Errorf("--model: want mlp or linear, got %q", model)
}

// predict returns the probability of each digit.
func (n *network) predict(x []float64) []float64 {
	if n.hidden != nil {
		x = n.hidden.forward(x)
		for i, v := range x {
			x[i] = max(v, 0)
		}
	}
	p := n.output.forward(x)
	most := p[0]
	for _, v := range p {
		most = max(most, v)
	}
	sum := 0.0
	for i, v := range p {
		p[i] = math.Exp(v - most)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// learn adds the gradients of one sample and returns its loss.
func (n *network) learn(s *sample) float64 {
	p := n.predict(s.x[:])
	copy(n.output.dy, p) // gradient of cross entropy through softmax
	n.output.dy[s.digit]--
	if n.hidden == nil {
		n.output.backward(s.x[:], nil)
	} else {
		clear(n.hidden.dy)
		n.output.backward(n.hidden.y, n.hidden.dy)
		for i, y := range n.hidden.y {
			if y == 0 {
				n.hidden.dy[i] = 0
			}
		}
		n.hidden.backward(s.x[:], nil)
	}
	return -math.Log(max(p[s.digit], 1e-300))
}

func (n *network) train(out io.Writer, samples []sample, rng *rand.Rand) {
	for epoch := 1; epoch <= n.epochs; epoch++ {
		rng.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
		loss, right := 0.0, 0
		for start := 0; start < len(samples); start += batchSize {
			batch := samples[start:min(start+batchSize, len(samples))]
			for i := range batch {
				loss += n.learn(&batch[i])
				if best(n.output.y) == batch[i].digit {
					right++
				}
			}
			// The rate falls evenly to a tenth: big steps first, then fine ones.
			rate := n.rate * (1 - 0.9*float64(epoch-1)/float64(n.epochs))
			if n.hidden != nil {
				n.hidden.step(rate, momentum, decay, len(batch))
			}
			n.output.step(rate, momentum, decay, len(batch))
		}
		if epoch == 1 || epoch%10 == 0 {
			fmt.Fprintf(out, "epoch %3d of %d  loss %.4f  training accuracy %.4f\n",
				epoch, n.epochs, loss/float64(len(samples)), float64(right)/float64(len(samples)))
		}
	}
}

// count returns how many samples the network reads right.
func (n *network) count(samples []sample) int {
	right := 0
	for i := range samples {
		if best(n.predict(samples[i].x[:])) == samples[i].digit {
			right++
		}
	}
	return right
}

func best(p []float64) int {
	b := 0
	for i, v := range p {
		if v > p[b] {
			b = i
		}
	}
	return b
}
