package runner

// The descriptors of "runner exec FOLDER", besides the command's own three.
const (
	// ExecRequestFD gives an ExecRequest and stays open: when it ends, whoever
	// wanted the command is gone, and the command is killed.
	ExecRequestFD = 3
	// ExecStatusFD is told, as JSON values, that the command runs or why not,
	// and how it ended.
	ExecStatusFD = 4
)

// ExecRequest is a command to be run beside the attempt's own, in the same
// sandbox: same namespaces, groups, user, filter and limits.
type ExecRequest struct {
	Argv     []string `json:"argv"`
	Terminal bool     `json:"terminal,omitempty"` // standard input is one
}

// ExecStatus is what is known of such a command.
type ExecStatus struct {
	Problem  string `json:"problem,omitempty"` // it does not run
	Started  bool   `json:"started,omitempty"`
	Ended    bool   `json:"ended,omitempty"`
	ExitCode int    `json:"exit_code,omitempty"` // 128 and the signal's number if one ended it
}
