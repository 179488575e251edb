package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/blindindex"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// BlindIndex stores the index by which persons are found.
type BlindIndex struct{ *state }

var _ ports.BlindIndex = (*BlindIndex)(nil)

// BlindIndexPositions implements ports.BlindIndex.
func (s *BlindIndex) BlindIndexPositions(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]ports.BlindIndexPosition, error) {
	return get(ctx, s.state, func() (map[event.PartitionID]ports.BlindIndexPosition, error) {
		out := make(map[event.PartitionID]ports.BlindIndexPosition, len(partitions))
		for _, p := range partitions {
			if at, begun := s.indexed[p]; begun {
				out[p] = at
			}
		}
		return out, nil
	})
}

// BeginBlindIndex implements ports.BlindIndex.
func (s *BlindIndex) BeginBlindIndex(ctx context.Context, p event.PartitionID, from ports.BlindIndexPosition, key blindindex.Hash) (ports.BlindIndexPosition, error) {
	return get(ctx, s.state, func() (ports.BlindIndexPosition, error) {
		from.Key = key
		to, err := s.moveIndex(p, from, 0)
		if err == nil {
			s.forget(func(e blindindex.Entry) bool { return e.Partition == p })
		}
		return to, err
	})
}

// AdvanceBlindIndex implements ports.BlindIndex.
func (s *BlindIndex) AdvanceBlindIndex(ctx context.Context, p event.PartitionID, from ports.BlindIndexPosition, through event.Sequence, entries []blindindex.Entry) (ports.BlindIndexPosition, error) {
	return get(ctx, s.state, func() (ports.BlindIndexPosition, error) {
		to, err := s.moveIndex(p, from, through)
		if err == nil {
			for _, e := range entries {
				s.index[e] = true
			}
		}
		return to, err
	})
}

func (s *BlindIndex) moveIndex(p event.PartitionID, from ports.BlindIndexPosition, through event.Sequence) (ports.BlindIndexPosition, error) {
	if s.indexed[p].Revision != from.Revision {
		return ports.BlindIndexPosition{}, blindindex.Moved()
	}
	from.Sequence = through
	from.Revision++
	s.indexed[p] = from
	return from, nil
}

func (s *BlindIndex) forget(isForgotten func(e blindindex.Entry) bool) {
	maps.DeleteFunc(s.index, func(e blindindex.Entry, _ bool) bool { return isForgotten(e) })
}

// ForgetSubject implements ports.BlindIndex.
func (s *BlindIndex) ForgetSubject(ctx context.Context, p event.PartitionID, subject shredding.Subject, classes []shredding.KeyClass, passed event.Sequence) error {
	return s.do(ctx, func() error {
		at := s.indexed[p]
		if at.Revision == 0 || at.Sequence < passed {
			return blindindex.Behind()
		}
		at.Revision++
		s.indexed[p] = at
		s.forget(isOf(p, subject, classes))
		return nil
	})
}

func isOf(p event.PartitionID, subject shredding.Subject, classes []shredding.KeyClass) func(e blindindex.Entry) bool {
	return func(e blindindex.Entry) bool {
		return e.Partition == p && e.Subject == subject && slices.Contains(classes, e.KeyClass)
	}
}

// CountBlindIndex implements ports.BlindIndex.
func (s *BlindIndex) CountBlindIndex(ctx context.Context, p event.PartitionID, subject shredding.Subject, classes []shredding.KeyClass) (n int64, err error) {
	return get(ctx, s.state, func() (int64, error) {
		counted := isOf(p, subject, classes)
		for e := range s.index {
			if counted(e) {
				n++
			}
		}
		return n, nil
	})
}

// FindSubjects implements ports.BlindIndex.
func (s *BlindIndex) FindSubjects(ctx context.Context, q ports.SubjectQuery) ([]blindindex.Entry, error) {
	return get(ctx, s.state, func() ([]blindindex.Entry, error) {
		hashes := map[shredding.Subject]map[blindindex.Hash]bool{}
		places := map[shredding.Subject]map[blindindex.Entry]bool{}
		for e := range s.index {
			if e.Kind != q.Kind || e.Subject <= q.After || !slices.Contains(q.Partitions, e.Partition) || !slices.Contains(q.Hashes, e.Hash) {
				continue
			}
			if hashes[e.Subject] == nil {
				hashes[e.Subject], places[e.Subject] = map[blindindex.Hash]bool{}, map[blindindex.Entry]bool{}
			}
			hashes[e.Subject][e.Hash] = true
			e.Hash, e.KeyClass = blindindex.Hash{}, 0
			places[e.Subject][e] = true
		}
		subjects := first(list(maps.Keys(hashes), func(of shredding.Subject) bool { return len(hashes[of]) == len(q.Hashes) }, cmp.Compare), q.Limit)
		found := []blindindex.Entry{}
		for _, of := range subjects {
			found = append(found, list(maps.Keys(places[of]), all, func(a, b blindindex.Entry) int {
				return cmp.Or(cmp.Compare(a.Partition, b.Partition), strings.Compare(a.Type, b.Type), strings.Compare(a.Path, b.Path), cmp.Compare(a.Class, b.Class))
			})...)
		}
		return found, nil
	})
}

// ClearBlindIndex implements ports.BlindIndex.
func (s *BlindIndex) ClearBlindIndex(ctx context.Context) error {
	return s.do(ctx, func() error {
		for p, at := range s.indexed {
			s.indexed[p] = ports.BlindIndexPosition{Revision: at.Revision + 1}
		}
		clear(s.index)
		return nil
	})
}
