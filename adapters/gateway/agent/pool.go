package agent

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// Where runs that have shares of the accelerator pool find what that takes.
const (
	poolProgram = "/run/yunhe-pool/yunhe"
	poolLibrary = "/run/yunhe-pool/lib"
	poolSlices  = "/tmp/.yunhe-pool/" + pool.SliceFile // written by what redeems the passes, for commands beside the run
)

// LibraryVariable says where the client library is shown, and DriverVariable that the
// run has the driver of CUDA itself.
const (
	LibraryVariable = "YUNHE_POOL_LIBRARY"
	DriverVariable  = "YUNHE_POOL_DRIVER"
)

func (a *Agent) poolDir() string { return filepath.Join(a.cfg.Dir, "pool") }

// openPool puts the client library where runs are shown it. A gateway that cannot
// offers no shares of the accelerator pool.
func (a *Agent) openPool() {
	if a.cfg.Program == "" || !pool.Built() {
		return
	}
	st, err := os.Stat(a.cfg.Program)
	if err == nil && st.Mode()&0o005 != 0o005 {
		err = fault.New(fault.Denied, "%s must be readable and executable for all", a.cfg.Program)
	}
	if err == nil {
		err = pool.LibraryFor(a.poolDir(), poolLibrary)
	}
	if err != nil {
		a.log.Warn("runs have no shares of the accelerator pool here", "error", err)
		return
	}
	a.lends = true
}

// share has a spec's command run by what redeems its passes: the shares last as long
// as that, and end when the run does, whoever ends it. Commands beside the run find
// them by the file that it writes.
func (a *Agent) share(spec *sandbox.Spec, p *adapterv1.PoolShares) error {
	if !a.lends {
		return fault.New(fault.Unimplemented, "this gateway gives runs no shares of the accelerator pool")
	}
	var sockets []string // of the passes
	for _, x := range p.Passes {
		tool, err := a.beside(x)
		switch {
		case err != nil && p.Local:
			return err
		case err != nil: // it comes over the network
			sockets = append(sockets, "")
			continue
		}
		sockets = append(sockets, filepath.Join(tool.Path, filepath.Base(pool.SharedSocket)))
		if !slices.Contains(spec.Tools, tool) {
			spec.Tools = append(spec.Tools, tool)
		}
	}
	b, err := pool.PassesText(p.Passes, sockets...)
	if err != nil {
		return err
	}
	driver := p.Local && p.Api == pool.CUDA
	if driver {
		if err := a.drive(spec, p.Passes); err != nil {
			return err
		}
	}
	if root := cmp.Or(spec.RootFS, "/"); p.Api != pool.CUDA {
		if path := pool.SearchPath(root, spec.Env["LD_LIBRARY_PATH"], filepath.Join(poolLibrary, pool.LoaderFolder)); path != "" {
			spec.Env["LD_LIBRARY_PATH"] = path
		}
	}
	spec.BesideEnv = map[string]string{"OCL_ICD_VENDORS": filepath.Join(poolLibrary, pool.Vendors), pool.FileVariable: poolSlices}
	for name, value := range spec.Env {
		if !pool.Leads(name) {
			spec.BesideEnv[name] = value
		}
	}
	switch {
	case driver:
		spec.BesideEnv["LD_PRELOAD"] = strings.TrimSuffix(filepath.Join(poolLibrary, pool.CUDABefore)+":"+spec.Env["LD_PRELOAD"], ":")
		spec.Env[DriverVariable] = "1"
	case p.Api == pool.CUDA:
		for _, e := range pool.RemoteCUDAEnvironment(filepath.Join(poolLibrary, pool.CUDAFolder), spec.Env["LD_LIBRARY_PATH"], spec.Env["LD_PRELOAD"]) {
			name, value, _ := strings.Cut(e, "=")
			spec.BesideEnv[name] = value
		}
	}
	spec.Args, spec.Command = []string{poolProgram, "pool", "exec", "--", "/bin/sh", "-c", spec.Command}, ""
	spec.Env[pool.PassesVariable], spec.Env[LibraryVariable], spec.Env[pool.FileVariable] = string(b), poolLibrary, poolSlices
	spec.Tools = append(spec.Tools, sandbox.Tool{Path: poolProgram, Source: a.cfg.Program}, sandbox.Tool{Path: poolLibrary, Source: a.poolDir()})
	return nil
}
