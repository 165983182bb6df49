package slurm

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/pool"
)

// Shares of the accelerator pool. Beside the command the script starts what redeems
// the run's passes and has its shares as long as the script lives, and the command
// when it has them; it finds them by a folder beside its files.
//
// Passes are good for 30 to 45 s, and a job may wait for longer. The platform sends
// new ones every few seconds until one was redeemed. Those that the attempt came
// with are in the script; newer ones the driver puts into the folder, once the
// script has made it. Until the command begins the attempt is told as waiting.
const passes = ".passes" // the newest; .shares is the folder of what programs find shares by

// poolWord in a job's comment: its command waits for shares.
const poolWord = "pool"

// sharesMost is how long a job that has begun waits for shares: a little longer than
// `yunhe pool exec --passes` does, which ends it then.
const sharesMost = pool.PassesWait + 10*time.Second

// sharesRefused says why an attempt cannot have its shares of the pool now, "": it can.
func (d *Driver) sharesRefused(a *adapterv1.Attempt) string {
	switch {
	case a.Pool == nil:
		return ""
	case d.cfg.PoolProgram == "":
		return "center " + d.center + " gives runs no shares of the accelerator pool: an operator sets pool_program in its configuration"
	case len(a.Pool.Passes) == 0:
		return "its shares of the accelerator pool did not come with it: " + a.Pool.Lacking
	case a.Pool.Local && d.cfg.PoolFolder == "":
		return "center " + d.center + " gives runs no shares of the pool node on their machine: an operator sets pool_folder in its configuration"
	case a.Pool.Local && a.Node == "":
		return "it does not say on which machine its shares of the accelerator pool are"
	}
	return ""
}

// sockets are where what redeems an attempt's passes finds the shared socket of the pool's
// node on its machine; none if its shares need not be of that.
func (c *Config) sockets(a *adapterv1.Attempt) []string {
	if !a.Pool.GetLocal() {
		return nil
	}
	return slices.Repeat([]string{path.Join(c.PoolFolder, path.Base(pool.SharedSocket))}, len(a.Pool.Passes))
}

// renew has an attempt that was submitted find its newest passes.
func (d *Driver) renew(a *adapterv1.Attempt) {
	if d.folder == nil || len(a.Pool.GetPasses()) == 0 {
		return
	}
	text, err := pool.PassesText(a.Pool.Passes, d.cfg.sockets(a)...)
	if err == nil {
		err = d.folder.putPasses(a.AttemptId, text)
	}
	if err != nil {
		d.log.Warn("a run may not have its shares of the accelerator pool; may this process write to its folder?", "attempt_id", a.AttemptId, "error", err)
	}
}

// putPasses replaces the passes of an attempt whose script waits for some.
func (f *folder) putPasses(attempt string, text []byte) error {
	root, err := f.open()
	if err == nil {
		_, err = root.Lstat(attempt + "/" + passes) // which the script makes first
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its job waits, or has them
	}
	if err != nil {
		return err
	}
	name := attempt + "/" + passes
	if err := root.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	// The job may be another user's; who else may not look into the folder.
	if err := root.Chmod(name+".new", 0o644); err != nil {
		return err
	}
	return root.Rename(name+".new", name)
}

// takeShares are the lines by which the script gets a run's shares, and find those
// by which its command does; none without any.
func (p plan) takeShares() (take, find string, err error) {
	a := p.attempt
	if a.Pool == nil {
		return "", "", nil
	}
	text, err := pool.PassesText(a.Pool.Passes, p.sockets...)
	if err != nil {
		return "", "", err
	}
	library, local := pool.CUDALoaded, ""
	if a.Pool.Local {
		library, local = pool.CUDABefore, " --local"
	}
	fill := strings.NewReplacer("@PROGRAM", quote(p.program), "@PASSES", quote(string(text)), "@LIBRARY", library, "@LOCAL", local,
		"@VENDORS", pool.Vendors, "@VARIABLE", pool.FileVariable, "@FILE", pool.SliceFile)
	finds := findShares
	if a.Pool.Api == pool.CUDA {
		finds = findCUDA
	}
	return fill.Replace(takeShares), fill.Replace(finds), nil
}

// Who holds the shares ends when nobody has its input open any more, so with this
// script, whatever ends it, and ignores what ends the command.
var takeShares = signals.Replace(`
program=@PROGRAM
mkdir -p -- "$dir/.shares" && printf %s @PASSES >"$dir/.passes" || end_by @NOSTART
rm -f -- "$dir/.shares/@FILE" "$dir/.shares/over"
exec 9> >("$program" pool exec --into "$dir/.shares"@LOCAL --passes "$dir/.passes" >/dev/null 2>"$dir/.shares/said"; : >"$dir/.shares/over")
while [ ! -e "$dir/.shares/@FILE" ]; do
	[ ! -e "$dir/.shares/over" ] || { cat -- "$dir/.shares/said" >>"$dir/log"; end_by @NOSTART; }
	sleep 0.1
done
rm -f -- "$dir/.passes"
`)

const findShares = `	export OCL_ICD_VENDORS="$dir/.shares/@VENDORS" @VARIABLE="$dir/.shares/@FILE"
	found=$("$program" pool ready --search-path "$dir/.shares") && [ -z "$found" ] || export LD_LIBRARY_PATH="$found"
`

const findCUDA = `	export OCL_ICD_VENDORS="$dir/.shares/@VENDORS" @VARIABLE="$dir/.shares/@FILE" LD_PRELOAD="$dir/.shares/@LIBRARY${LD_PRELOAD:+:$LD_PRELOAD}"
`

// giveShares ends them, after the command; what there is to say of them is in the log. A
// command that fails because they have ended may do so before who holds them has said it.
const giveShares = `
if [ -d "$dir/.shares" ]; then
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		[ "$code" != 0 ] && [ "$why" = done ] && [ ! -e "$dir/.shares/over" ] || break
		sleep 0.1
	done
	[ ! -e "$dir/.shares/over" ] || cat -- "$dir/.shares/said" >>"$dir/log"
	exec 9>&-
	rm -f -- "$dir/.passes" # a newer one
fi
`
