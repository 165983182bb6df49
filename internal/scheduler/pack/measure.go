package pack

// Fragmentation measures how much of a cluster's free cards is of no use to
// likely tasks, as fragmentation gradient descent defines it, whatever policy
// the cluster has. Free cards of a node on which a task does not fit count
// whole; where it fits, the cards count that have less free than it asks for;
// tasks count by how common they are.
type Fragmentation struct {
	cluster *Cluster
	of      *fragmentation
}

// Measure makes a measure for a cluster.
func (c *Cluster) Measure(likely []Task) *Fragmentation {
	return &Fragmentation{c, newFragmentation(c, likely)}
}

// Amount is what is of no use now, in thousandths of a card.
func (f *Fragmentation) Amount() float64 {
	total := 0.0
	for i := range f.cluster.rooms {
		r := f.cluster.rooms[i]
		r.memory = 0 // which the measure does not look at
		total += f.of.value(r)
	}
	return total
}
