package simulation

import (
	"slices"
	"testing"
)

// TestRepeats runs seeds twice, with other seeds in between. A run must depend on nothing but its
// seed: neither on chance nor on what ran before.
func TestRepeats(t *testing.T) {
	deterministic(t)
	seeds := []uint64{2, 6, 7, 12}
	first := map[uint64]outcome{}
	for i, s := range slices.Concat(seeds, []uint64{7, 2, 12, 6}) {
		out := runSeed(t, s, options{})
		if i < len(seeds) {
			first[s] = out
		} else if before := first[s]; out.Digest != before.Digest {
			t.Errorf("seed %d made %d calls and %d events, and then %d and %d, or at other times; compare two files of -trace", s, before.Calls, before.Events, out.Calls, out.Events)
		}
	}
}
