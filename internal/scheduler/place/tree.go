package place

import "math"

// never is a key that is not found by [tree.first].
const never = math.MinInt64

// tree finds the index with the highest key, the lowest such index among
// equals. Changing a key costs one path to the root: a tournament.
type tree struct {
	key []int64
	win []int32 // by inner node, from 1: the winner below; leaf i is node i+len(key)
}

// newTree returns a tree over keys, which it keeps.
func newTree(keys []int64) *tree {
	t := &tree{key: keys, win: make([]int32, max(len(keys), 1))}
	t.build()
	return t
}

// build brings the tree up to date with all keys.
func (t *tree) build() {
	for node := len(t.key) - 1; node > 0; node-- {
		t.win[node] = t.play(node)
	}
}

// play returns the winner below an inner node.
func (t *tree) play(node int) int32 {
	n := len(t.key)
	a, b := int32(2*node-n), int32(2*node+1-n)
	if a < 0 {
		a = t.win[2*node]
	}
	if b < 0 {
		b = t.win[2*node+1]
	}
	if ka, kb := t.key[a], t.key[b]; kb > ka || kb == ka && b < a {
		return b
	}
	return a
}

// first returns the index that wins, -1 if every key is never.
func (t *tree) first() int32 {
	i := int32(0)
	if len(t.key) > 1 {
		i = t.win[1]
	}
	if len(t.key) == 0 || t.key[i] == never {
		return -1
	}
	return i
}

// set changes one key.
func (t *tree) set(i int32, key int64) {
	t.key[i] = key
	for node := (int(i) + len(t.key)) / 2; node > 0; node /= 2 {
		was, now := t.win[node], t.play(node)
		if was == now && now != i {
			return // nothing above knows of i
		}
		t.win[node] = now
	}
}
