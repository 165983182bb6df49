package badinput

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/encoding/protojson"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/jobfile"
)

// FuzzAPI changes right requests in ways drawn from the input: some fields
// get wrong, odd or missing values, some bodies are damaged byte by byte. For
// what comes of it everything must hold that holds for any call.
func FuzzAPI(f *testing.F) {
	p := start(f, "")
	all := methods(f)
	for i := range all {
		f.Add(uint64(i), uint64(1), "x", int64(-1))
	}
	f.Fuzz(func(t *testing.T, which, seed uint64, text string, number int64) {
		rng := rand.New(rand.NewPCG(which, seed))
		m := all[which%uint64(len(all))]
		o := p.example(m)
		for range 1 + rng.IntN(4) {
			fs := fields(m.desc.Input(), o, nil)
			if len(fs) == 0 {
				break
			}
			fd := fs[rng.IntN(len(fs))]
			var x any
			switch rng.IntN(5) {
			case 0:
				x = pick(rng, wrongTypes(fd.desc))
			case 1, 2:
				x = pick(rng, oddValues(fd.desc))
			case 3:
				x = text
			default:
				x = number
			}
			o = with(o, fd.path, x).(object)
		}
		if strings.HasPrefix(m.name(), "Delete") || strings.HasPrefix(m.name(), "Re") { // leave later rounds something to work on
			for k, v := range o {
				if s, ok := v.(string); ok && strings.HasSuffix(k, "_id") {
					o[k] = s + text + "x"
				}
			}
		}
		rs := both(m, o)
		r := rs[rng.IntN(len(rs))]
		if rng.IntN(4) == 0 && len(r.body) > 5 && !r.stays {
			for range 1 + rng.IntN(3) {
				r.body[rng.IntN(len(r.body))] = byte(rng.Uint32())
			}
		}
		tokens := []string{p.admin, p.alice, p.bob, p.auditor, ""}
		if httpguts.ValidHeaderFieldValue(text) { // a client sends no other
			tokens = append(tokens, text)
		}
		watch(t, p).send(t, r, pick(rng, tokens))
	})
}

func pick[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// FuzzJobFile reads files people write for the command line: whatever is in
// them, the reader answers with a job or an error, and the platform takes the
// job or refuses it clearly.
func FuzzJobFile(f *testing.F) {
	p := start(f, "")
	f.Add("name: a\ntasks:\n  - name: t\n    command: 'true'\n    image_id: i1\n    resource_spec_id: s1\n    replica_number: 2\n")
	f.Add("name: a\ntasks: [{name: t, command: 'true', image_id: i1, resource_spec_id: s1, replica_number: -1, env: {A: 1}}]\npolicy_weights: {lowest-price: 1}\n")
	f.Add("{\"name\": \"a\", \"tasks\": []}")
	f.Add("name: &a [*a]\n")
	f.Add("\x00")
	f.Fuzz(func(t *testing.T, file string) {
		jobs, err := jobfile.Parse("job.yaml", []byte(file), fstest.MapFS{})
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Errorf("%q was refused without a word", file)
			}
			return
		}
		w := watch(t, p)
		for _, spec := range jobs.Specs[:min(3, len(jobs.Specs))] {
			body, err := protojson.Marshal(&jobsv1.SubmitJobRequest{Job: spec})
			if err != nil {
				t.Fatalf("%q gave a job that cannot be sent: %v", file, err)
			}
			w.send(t, request{verb: "POST", path: "/v1/jobs", body: body}, p.alice)
		}
	})
}
