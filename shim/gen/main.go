// Command gen makes both sides of the calls that shim/opencl.table and
// shim/cuda.table list: the stubs of the client libraries in C, and the tables
// that workers call by; and of shim/loader.table what our loader of OpenCL has.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"strconv"
	"strings"
)

// row is a line of the table.
type row struct {
	number int
	how    string
	name   string
	params []string
}

// handles are the kinds of parameters that are handles: their C type, the
// kind of object, and the error when it is not one.
var handles = map[string][3]string{
	"queue":  {"cl_command_queue", "QUEUE", "CL_INVALID_COMMAND_QUEUE"},
	"mem":    {"cl_mem", "MEM", "CL_INVALID_MEM_OBJECT"},
	"kernel": {"cl_kernel", "KERNEL", "CL_INVALID_KERNEL"},
	"event":  {"cl_event", "EVENT", "CL_INVALID_EVENT"},
}

// types are the C types of the other parameters; a kind may be two.
var types = map[string][]string{
	"u32": {"cl_uint"}, "i32": {"cl_int"}, "flags": {"cl_bitfield"}, "size": {"size_t"}, "size3": {"const size_t *"},
	"waits": {"cl_uint", "const cl_event *"}, "mems": {"cl_uint", "const cl_mem *"}, "pattern": {"const void *", "size_t"}, "color": {"const void *"}, "out": {"cl_event *"}, "work": nil,
}

// commands are what an event of a call says that it is.
var commands = map[string]string{
	"clEnqueueTask": "TASK", "clEnqueueCopyBuffer": "COPY_BUFFER", "clEnqueueCopyBufferRect": "COPY_BUFFER_RECT", "clEnqueueFillBuffer": "FILL_BUFFER", "clEnqueueFillImage": "FILL_IMAGE",
	"clEnqueueCopyImage": "COPY_IMAGE", "clEnqueueCopyImageToBuffer": "COPY_IMAGE_TO_BUFFER", "clEnqueueCopyBufferToImage": "COPY_BUFFER_TO_IMAGE", "clEnqueueMigrateMemObjects": "MIGRATE_MEM_OBJECTS",
	"clEnqueueMarkerWithWaitList": "MARKER", "clEnqueueBarrierWithWaitList": "BARRIER", "clEnqueueMarker": "MARKER",
}

func main() {
	log.SetFlags(0)
	text, err := os.ReadFile("shim/opencl.table")
	if err != nil {
		log.Fatal(err)
	}
	rows, err := parse(string(text))
	if err != nil {
		log.Fatal("shim/opencl.table: ", err)
	}
	write("shim/src/ops.h", []byte(numbers(rows)))
	write("shim/src/stubs.h", []byte(stubs(rows)))
	src, err := format.Source([]byte(table(rows)))
	if err != nil {
		log.Fatal(err)
	}
	write("internal/pool/wire/table.go", src)
	cuda()
	loader()
}

// write replaces a file only if it changed.
func write(path string, text []byte) {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		log.Fatal(err)
	}
}

func parse(text string) ([]row, error) {
	var rows []row
	seen := map[int]bool{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		n, err := strconv.Atoi(f[0])
		if err != nil || len(f) < 3 || seen[n] || n < 1 {
			return nil, fmt.Errorf("not a line of the table, or its number is used twice: %q", line)
		}
		seen[n] = true
		for _, p := range f[3:] {
			_, other := types[p]
			if _, ok := handles[p]; !ok && !other && p != "osize3" {
				return nil, fmt.Errorf("%s: there is no kind of parameter %q", f[2], p)
			}
		}
		rows = append(rows, row{n, f[1], f[2], f[3:]})
	}
	return rows, nil
}

func opName(r row) string { return "OP_" + trimCL(r.name) }

// trimCL takes OpenCL's prefix from a name that has it: clFlush, not clone_kernel.
func trimCL(name string) string {
	if len(name) > 2 && name[2] >= 'A' && name[2] <= 'Z' {
		return name[2:]
	}
	return name
}

const made = "/* Made from shim/opencl.table by shim/gen; not to be edited. */\n"

func numbers(rows []row) string {
	var b strings.Builder
	b.WriteString(made + "enum {\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "  %s = %d,\n", opName(r), r.number)
	}
	b.WriteString("};\n")
	return b.String()
}

func stubs(rows []row) string {
	var b strings.Builder
	b.WriteString(made + "#include \"ops.h\"\n#include \"pool.h\"\n")
	for _, r := range rows {
		if r.how == "stub" {
			b.WriteString(stub(r))
		}
	}
	b.WriteString("\n#define YP_STUBS(X)")
	for _, r := range rows {
		if r.how == "stub" {
			fmt.Fprintf(&b, " \\\n  X(%s)", r.name)
		}
	}
	b.WriteString("\n")
	return b.String()
}

// sound are functions of the client that say of calls, by their memory and sizes, whether they are right: such a call is
// known to be if one of its queue was.
var sound = map[string]string{"clEnqueueCopyBuffer": "yp_sound_copy", "clEnqueueFillBuffer": "yp_sound_fill"}

// stub is the client's function: it checks its handles, writes the message,
// and ends it.
func stub(r row) string {
	var params, checks, message, given []string
	var waits, out, queue, owner, image string
	n := 0
	name := func() string { n++; return "a" + strconv.Itoa(n-1) }
	for _, p := range r.params {
		if h, ok := handles[p]; ok {
			a := name()
			params = append(params, h[0]+" "+a)
			checks = append(checks, fmt.Sprintf("if (!is(%s, %s)) return %s;", a, h[1], h[2]))
			if p == "queue" {
				queue, owner = a, "obj("+a+")->context"
			} else if queue != "" {
				checks = append(checks, fmt.Sprintf("if (obj(%s)->context != %s) return CL_INVALID_CONTEXT;", a, owner))
			}
			if p == "mem" {
				image = a
				given = append(given, "obj("+a+")")
			}
			message = append(message, "yp_word(obj("+a+")->id);")
			continue
		}
		var names []string
		for _, t := range types[p] {
			a := name()
			names = append(names, a)
			params = append(params, strings.TrimSuffix(t+" ", "* ")+strings.Repeat("*", strings.Count(t, "*"))+a)
		}
		switch p {
		case "u32", "i32", "flags", "size":
			given = append(given, names[0])
			message = append(message, fmt.Sprintf("yp_word((uint64_t)%s);", names[0]))
		case "size3":
			checks = append(checks, fmt.Sprintf("if (!%s) return CL_INVALID_VALUE;", names[0]))
			message = append(message, fmt.Sprintf("yp_size3(%s);", names[0]))
		case "pattern":
			checks = append(checks, fmt.Sprintf("if (!%s || !%s || %s > 128) return CL_INVALID_VALUE;", names[0], names[1], names[1]))
			given = append(given, names[1])
			message = append(message, fmt.Sprintf("yp_bytes(%s, %s);", names[0], names[1]))
		case "color":
			checks = append(checks, fmt.Sprintf("if (!%s) return CL_INVALID_VALUE;", names[0]))
			message = append(message, fmt.Sprintf("yp_color(obj(%s), %s);", image, names[0]))
		case "mems":
			checks = append(checks, fmt.Sprintf("if (!%s || !%s) return CL_INVALID_VALUE;\n  for (cl_uint i = 0; i < %s; i++)\n    if (!is(%s[i], MEM)) return CL_INVALID_MEM_OBJECT;", names[0], names[1], names[0], names[1]))
			message = append(message, fmt.Sprintf("yp_word(%s);\n  for (cl_uint i = 0; i < %s; i++) yp_word(obj(%s[i])->id);", names[0], names[0], names[1]))
		case "waits":
			waits = names[0] + ", " + names[1]
		case "out":
			out = names[0]
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nstatic cl_int CL_API_CALL yp_%s(%s) {\n", r.name, strings.Join(params, ", "))
	for _, c := range checks {
		b.WriteString("  " + c + "\n")
	}
	if waits != "" {
		fmt.Fprintf(&b, "  cl_int bad = yp_check_waits(%s, %s);\n  if (bad) return bad;\n", owner, waits)
	}
	if out != "" {
		fmt.Fprintf(&b, "  object *e = %s ? yp_event(obj(%s), CL_COMMAND_%s) : NULL;\n", out, queue, commands[r.name])
	}
	fmt.Fprintf(&b, "  yp_begin(obj(a0)->node, %s);\n", opName(r)) // a call's first parameter is a handle
	proof := "  yp_proof();\n"
	if says := sound[r.name]; says != "" { // of the message's words only the queue counts then
		message[0] += fmt.Sprintf("\n  const bool sound = %s(%s);\n  if (sound) yp_proof();", says, strings.Join(given, ", "))
		proof = "  if (!sound) yp_proof();\n"
	}
	for _, m := range message {
		b.WriteString("  " + m + "\n")
	}
	b.WriteString(proof)
	if waits != "" {
		fmt.Fprintf(&b, "  yp_waits(%s);\n", waits)
	}
	if out != "" {
		b.WriteString("  yp_word(e ? e->id : 0);\n")
	}
	if queue == "" { // setting an event a second time is wrong, so that it went well once proves nothing
		b.WriteString("  return yp_sync(NULL);\n}\n")
		return b.String()
	}
	e := "NULL"
	if out != "" {
		e = "e"
	}
	b.WriteString("  cl_int status = yp_send_to(obj(" + queue + "), " + e + ");\n")
	if out != "" {
		fmt.Fprintf(&b, "  if (e && status) yp_destroy(e);\n  else if (e) *%s = (cl_event)e;\n", out)
	}
	b.WriteString("  return status;\n}\n")
	return b.String()
}

func table(rows []row) string {
	var b strings.Builder
	b.WriteString("// Code generated by shim/gen from shim/opencl.table. DO NOT EDIT.\n\npackage wire\n\n// The calls that cross the wire.\nconst (\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "\t%s Op = %d\n", goName(r), r.number)
	}
	b.WriteString(")\n\n// Calls are those that the worker calls by their parameters, by their numbers; see [CallOf].\nvar Calls = []Call{\n")
	for _, r := range rows {
		if r.how == "op" {
			continue
		}
		work := "false"
		var kinds []string
		for _, p := range r.params {
			if p == "work" {
				work = "true"
				continue
			}
			kinds = append(kinds, "Kind"+strings.ToUpper(p[:1])+p[1:])
		}
		fmt.Fprintf(&b, "\t%s: {Name: %q, Work: %s, Params: []Kind{%s}},\n", goName(r), r.name, work, strings.Join(kinds, ", "))
	}
	b.WriteString("}\n\n// ops are the numbers there are.\nvar ops = []string{\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "\t%s: %q,\n", goName(r), r.name)
	}
	b.WriteString("}\n")
	return b.String()
}

func goName(r row) string {
	var b strings.Builder
	for part := range strings.SplitSeq(trimCL(r.name), "_") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return "Op" + b.String()
}
