package pool

// SetLimits bounds all tasks, those that run too.
func (n *Node) SetLimits(l Limits) { n.limits.Store(&l) }

// Parts are the programs that the node consists of beside its own.
func (n *Node) Parts() []Part {
	workers := 0
	n.mu.Lock()
	for _, t := range n.tasks {
		workers += t.show().Programs
	}
	n.mu.Unlock()
	return []Part{{"worker", version(workerProgram), workers}, {"library", version(clientLibrary), 0}}
}
