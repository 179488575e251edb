package memory

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// AccessLog stores the record of reads.
type AccessLog struct{ *state }

var _ ports.AccessLog = (*AccessLog)(nil)

func compareAccesses(a, b disclosure.Access) int {
	if c := a.At.Compare(b.At); c != 0 {
		return c
	}
	return a.ID.Compare(b.ID)
}

// AddAccesses implements ports.AccessLog.
func (s *AccessLog) AddAccesses(ctx context.Context, log event.PartitionID, accesses []disclosure.Access) error {
	return s.do(ctx, func() error {
		for _, a := range accesses {
			a.At = s.now()
			s.accesses[log] = append(s.accesses[log], a)
		}
		slices.SortStableFunc(s.accesses[log], compareAccesses)
		return nil
	})
}

// SearchAccesses implements ports.AccessLog.
func (s *AccessLog) SearchAccesses(ctx context.Context, q ports.AccessQuery) ([]disclosure.Access, error) {
	return get(ctx, s.state, func() ([]disclosure.Access, error) {
		before := disclosure.Access{At: q.BeforeAt, ID: q.BeforeID}
		return first(list(slices.Values(s.accesses[q.Log]), func(a disclosure.Access) bool {
			return (q.PersonID == "" || a.PersonID == q.PersonID) && (q.Subject == "" || a.Subject == q.Subject) &&
				(q.Class == "" || a.Class == q.Class) && (q.Kind == "" || a.Kind == q.Kind) &&
				!a.At.Before(q.From) && (q.To.IsZero() || a.At.Before(q.To)) && (q.BeforeAt.IsZero() || compareAccesses(a, before) < 0)
		}, func(a, b disclosure.Access) int { return compareAccesses(b, a) }), q.Limit), nil
	})
}

// Accesses implements ports.AccessReader.
func (s *AccessLog) Accesses(ctx context.Context, log event.PartitionID, from, to time.Time) iter.Seq2[disclosure.Access, error] {
	return func(yield func(disclosure.Access, error) bool) {
		found, err := s.SearchAccesses(ctx, ports.AccessQuery{Log: log, From: from, To: to})
		if err != nil {
			yield(disclosure.Access{}, err)
			return
		}
		slices.Reverse(found)
		for _, a := range found {
			if !yield(a, nil) {
				return
			}
		}
	}
}

// SettleAccesses implements ports.AccessLog. Every access is stored at once under the lock.
func (s *AccessLog) SettleAccesses(ctx context.Context) (time.Time, error) {
	return get(ctx, s.state, func() (time.Time, error) { return s.now(), nil })
}

// OldestAccess implements ports.AccessLog.
func (s *AccessLog) OldestAccess(ctx context.Context, log event.PartitionID) (time.Time, error) {
	return get(ctx, s.state, func() (time.Time, error) {
		if len(s.accesses[log]) == 0 {
			return time.Time{}, nil
		}
		return s.accesses[log][0].At, nil
	})
}

// DeleteAccesses implements ports.AccessLog.
func (s *AccessLog) DeleteAccesses(ctx context.Context, log event.PartitionID, before time.Time, limit int) (int, error) {
	return get(ctx, s.state, func() (int, error) {
		if latest := s.now().Add(-disclosure.MinRetention); before.After(latest) {
			before = latest
		}
		n := 0
		for n < len(s.accesses[log]) && !full(n, limit) && s.accesses[log][n].At.Before(before) {
			n++
		}
		s.accesses[log] = slices.Delete(s.accesses[log], 0, n)
		return n, nil
	})
}
