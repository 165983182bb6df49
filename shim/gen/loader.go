package main

import (
	"fmt"
	"log"
	"os"
	"regexp"
	"slices"
	"strings"
)

// loaderRow is a line of shim/loader.table.
type loaderRow struct {
	version, returns, name string // returns "": the function is written by hand
	params                 []string
}

var loaderLine = regexp.MustCompile(`^(\d\.\d) (?:own (cl\w+)|(.*[ *])(cl\w+)\((cl_.*)\))$`)

// noHandle is the error of a call whose first parameter is none.
var noHandle = map[string]string{
	"cl_platform_id": "CL_INVALID_PLATFORM", "cl_device_id": "CL_INVALID_DEVICE", "cl_context": "CL_INVALID_CONTEXT", "cl_program": "CL_INVALID_PROGRAM", "cl_sampler": "CL_INVALID_SAMPLER",
	"cl_command_queue": "CL_INVALID_COMMAND_QUEUE", "cl_mem": "CL_INVALID_MEM_OBJECT", "cl_kernel": "CL_INVALID_KERNEL", "cl_event": "CL_INVALID_EVENT",
}

func loader() {
	const path = "shim/loader.table"
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	var rows []loaderRow
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		m := loaderLine.FindStringSubmatch(line)
		if m == nil {
			log.Fatalf("%s: not a line of the table: %q", path, line)
		}
		r := loaderRow{version: m[1], returns: strings.TrimSpace(m[3]), name: m[2] + m[4]}
		if r.returns != "" {
			r.params = splitParams(m[5])
			if noHandle[r.params[0]] == "" {
				log.Fatalf("%s: the first parameter of %s is no handle: %q", path, r.name, r.params[0])
			}
		}
		if slices.ContainsFunc(rows, func(o loaderRow) bool { return o.name == r.name || o.version > r.version }) {
			log.Fatalf("%s: %s is there twice, or not with those of its version", path, r.name)
		}
		rows = append(rows, r)
	}
	write("shim/loader/calls.h", []byte(loaderCalls(rows)))
	write("shim/loader/exports.map", []byte(loaderExports(rows)))
}

// splitParams splits at commas that are not in parentheses.
func splitParams(s string) (out []string) {
	depth, from := 0, 0
	for i, c := range s {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			out, from = append(out, strings.TrimSpace(s[from:i])), i+1
		}
	}
	return append(out, strings.TrimSpace(s[from:]))
}

const madeLoader = "/* Made from shim/loader.table by shim/gen; not to be edited. */\n"

func loaderCalls(rows []loaderRow) string {
	var b strings.Builder
	b.WriteString(madeLoader)
	for _, r := range rows {
		if r.returns == "" {
			continue
		}
		var params, args []string
		for i, p := range r.params {
			a := fmt.Sprintf("a%d", i)
			args = append(args, a)
			switch before, after, function := strings.Cut(p, "(CL_CALLBACK *)"); {
			case function:
				params = append(params, before+"(CL_CALLBACK *"+a+")"+after)
			case strings.HasSuffix(p, "*"):
				params = append(params, p+a)
			default:
				params = append(params, p+" "+a)
			}
		}
		returns, call := r.returns, fmt.Sprintf("of(a0)->%s(%s)", r.name, strings.Join(args, ", "))
		if !strings.HasSuffix(returns, "*") {
			returns += " "
		}
		fmt.Fprintf(&b, "\nEXPORT %sCL_API_CALL %s(%s) {\n", returns, r.name, strings.Join(params, ", "))
		last := args[len(args)-1]
		switch tells := r.params[len(r.params)-1] == "cl_int *"; {
		case r.returns == "cl_int":
			fmt.Fprintf(&b, "  return a0 ? %s : %s;\n", call, noHandle[r.params[0]])
		case r.returns == "void":
			fmt.Fprintf(&b, "  if (a0) %s;\n", call)
		case tells:
			fmt.Fprintf(&b, "  if (a0) return %s;\n  if (%s) *%s = %s;\n  return NULL;\n", call, last, last, noHandle[r.params[0]])
		default:
			fmt.Fprintf(&b, "  return a0 ? %s : NULL;\n", call)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func loaderExports(rows []loaderRow) string {
	var b strings.Builder
	b.WriteString(madeLoader)
	for i := 0; i < len(rows); {
		before, version := "", rows[i].version
		if i > 0 {
			before = " OPENCL_" + rows[i-1].version
		}
		fmt.Fprintf(&b, "OPENCL_%s {\n  global:\n", version)
		for ; i < len(rows) && rows[i].version == version; i++ {
			fmt.Fprintf(&b, "    %s;\n", rows[i].name)
		}
		if before == "" {
			b.WriteString("  local:\n    *;\n")
		}
		fmt.Fprintf(&b, "}%s;\n", before)
	}
	return b.String()
}
