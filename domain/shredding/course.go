package shredding

import "slices"

// course is the way of a request that two persons decide on: the states that lead to its
// completion, in order, the moves that leave this path, and the states in which it ends then.
type course[S ~string] struct {
	path  []S
	exits map[S][]S
	ends  []S
}

// states lists every state, those of the path first.
func (c course[S]) states() []S { return append(slices.Clone(c.path), c.ends...) }

// next returns the state after this one on the path, false at its end and off the path.
func (c course[S]) next(s S) (S, bool) {
	i := slices.Index(c.path, s)
	if i < 0 || i+1 == len(c.path) {
		return "", false
	}
	return c.path[i+1], true
}

// final reports whether nothing follows a state.
func (c course[S]) final(s S) bool {
	return s == c.path[len(c.path)-1] || slices.Contains(c.ends, s)
}

// reached reports whether a state is a milestone on the path or comes after it.
func (c course[S]) reached(s, milestone S) bool {
	return slices.Index(c.path, s) >= slices.Index(c.path, milestone)
}

// canBecome reports whether a request may move from one state to another.
func (c course[S]) canBecome(from, to S) bool {
	next, ok := c.next(from)
	return ok && next == to || slices.Contains(c.exits[from], to)
}
