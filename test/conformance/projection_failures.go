package conformance

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// failurePromises are those of failing events, halted partitions and operators who act on them.
var failurePromises = []promise{
	{"failures are counted until a success", countFailures},
	{"failure at another event is not counted", staleFailure},
	{"poison event halts its partition", haltPartition},
	{"poison event is passed under skip_event", passPoison},
	{"poison event halts the projection under stop_projection", haltProjection},
	{"fixed partition tries again", fixPartition},
	{"skipped event is passed", skipEvent},
	{"reset reads from the beginning", resetPartition},
	{"only a halted partition is fixed or skipped", notHalted},
	{"worker of an earlier term is fenced", fenced},
	{"expired lease is valid until its next term", expiredLease},
	{"work waits for a lock no longer than it wants", busyCheckpoint},
	{"dead letters are paged", letterPages},
}

func (r *recorder) checkpoint(t tester, name string) ports.Checkpoint {
	t.Helper()
	list, err := r.store.Checkpoints(context.Background(), name, 1)
	require.NoError(t, err)
	for _, c := range list {
		if c.Partition == r.le.Partition {
			return c
		}
	}
	return ports.Checkpoint{}
}

// Reset implements ports.ProjectionResetter. It writes a row as a trace.
func (r *recorder) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	if err := r.readModel.Put(ctx, tx, b.Partition, "reset", b.Projection); err != nil {
		return err
	}
	if r.after != nil {
		return r.after()
	}
	return nil
}

func (r *recorder) failure(name string, at event.Sequence) ports.ProjectionFailure {
	return ports.ProjectionFailure{ProjectionWork: r.work(name, 1), At: at, Code: "case.broken", Detail: "events of type x", Pause: time.Minute}
}

func (r *recorder) operation(name string) ports.ProjectionOperation {
	return ports.ProjectionOperation{ProjectionWork: r.work(name, 1), By: "ada", Reason: "because"}
}

// register adds the projection, so that changes of it get revisions.
func (r *recorder) register(t *testing.T, name string) projection.Projection {
	t.Helper()
	p, err := r.store.AddProjection(context.Background(), projection.Projection{
		Name: name, Version: 1, Status: projection.Running, Settings: projection.DefaultSettings(), ChangedBy: "suite",
	})
	require.NoError(t, err)
	return p
}

func (s *suite) registered(t *testing.T, name string) projection.Projection {
	t.Helper()
	all, err := s.store.ListProjections(context.Background())
	require.NoError(t, err)
	for _, p := range all {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("there is no projection %s", name)
	return projection.Projection{}
}

func (s *suite) letters(t *testing.T, name string, statuses ...string) []ports.DeadLetter {
	t.Helper()
	list, err := s.store.ListDeadLetters(context.Background(), ports.DeadLetterQuery{Kind: ports.LetterOfProjection, Name: name, Statuses: statuses})
	require.NoError(t, err)
	require.NotNil(t, list)
	return list
}

// halted is a recorder that has read four events of ten and is halted at the fifth.
func (s *suite) halted(t *testing.T) (h *recorder, name string, before projection.Projection) {
	t.Helper()
	h, name = &recorder{partition: s.ten(t)}, s.unique("projection")
	before = h.register(t, name)
	h.advance(t, name, 4)
	_, err := s.store.Isolate(context.Background(), h.failure(name, 4), projection.StopPartition)
	require.NoError(t, err)
	return h, name, before
}

func busyCheckpoint(t *testing.T, s *suite) {
	b := s.ten(t)
	name, held, release := b.unique("projection"), make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() { close(held) })
	slow := &recorder{partition: b, after: func() error { hold(); <-release; return nil }}
	done := make(chan error, 1)
	go func() {
		_, _, err := b.store.Advance(context.Background(), slow.step(name, 1, nil, 4), slow)
		done <- err
	}()
	<-held
	brief := b.step(name, 1, nil, 4)
	brief.LockWait = 20 * time.Millisecond
	_, passed, err := b.store.Advance(context.Background(), brief, &recorder{partition: b})
	require.Equal(t, "projection.busy", fault.CodeOf(err))
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.Zero(t, passed)
	close(release)
	require.NoError(t, <-done)
	require.Equal(t, event.Sequence(4), slow.checkpoint(t, name).Sequence)
}

func countFailures(t *testing.T, s *suite) {
	b := s.ten(t)
	ctx := context.Background()
	h, name := &recorder{partition: b}, b.unique("projection")
	for _, at := range []event.Sequence{0, 4, 8} { // also before the first success
		first := b.clock.Now()
		for n := 1; n <= 3; n++ {
			c, err := b.store.RecordFailure(ctx, h.failure(name, at))
			require.NoError(t, err)
			require.Equal(t, h.checkpoint(t, name), c)
			require.Equal(t, []any{at, projection.Retrying, "case.broken", n}, []any{c.Sequence, c.Status, c.Error, c.Attempts})
			require.True(t, c.FirstFailedAt.Equal(first), "the first of them")
			require.True(t, c.LastFailedAt.Equal(b.clock.Now()))
			require.True(t, c.NextAttemptAt.Equal(b.clock.Now().Add(time.Minute)))
			b.clock.Advance(time.Second)
		}
		c, passed := h.advance(t, name, 4)
		require.NotZero(t, passed)
		require.Equal(t, h.checkpoint(t, name), c)
		require.Equal(t, []any{projection.Reading, "", 0}, []any{c.Status, c.Error, c.Attempts})
		require.True(t, c.FirstFailedAt.IsZero() && c.LastFailedAt.IsZero() && c.NextAttemptAt.IsZero())
	}
	c := h.checkpoint(t, name)
	require.Equal(t, []uint64{10, 0, 9}, []uint64{c.Processed, c.Skipped, c.Failed})
	all := b.all(t)
	require.True(t, c.LastEventAt.Equal(all[len(all)-1].RecordedAt))
	require.Equal(t, upTo(10), h.seen)
}

func staleFailure(t *testing.T, s *suite) {
	b := s.ten(t)
	h, name := &recorder{partition: b}, b.unique("projection")
	before, _ := h.advance(t, name, 4)
	for _, record := range []func() (ports.Checkpoint, error){
		func() (ports.Checkpoint, error) {
			return b.store.RecordFailure(context.Background(), h.failure(name, 3))
		},
		func() (ports.Checkpoint, error) {
			return b.store.Isolate(context.Background(), h.failure(name, 3), projection.SkipEvent)
		},
	} {
		c, err := record()
		require.NoError(t, err)
		require.Equal(t, before, c, "the checkpoint has passed that event since")
		require.Equal(t, before, h.checkpoint(t, name))
	}
	require.Empty(t, s.letters(t, name))
}

func haltPartition(t *testing.T, s *suite) {
	b, other := s.ten(t), s.ten(t)
	ctx := context.Background()
	h, name := &recorder{partition: b}, b.unique("projection")
	h.register(t, name)
	h.advance(t, name, 4)
	_, err := b.store.RecordFailure(ctx, h.failure(name, 4))
	require.NoError(t, err)
	first := b.clock.Now()
	b.clock.Advance(time.Minute)
	c, err := b.store.Isolate(ctx, h.failure(name, 4), projection.StopPartition)
	require.NoError(t, err)
	require.Equal(t, h.checkpoint(t, name), c)
	require.Equal(t, []any{event.Sequence(4), projection.Halted, "case.broken", 2}, []any{c.Sequence, c.Status, c.Error, c.Attempts})
	require.Equal(t, projection.Running, s.registered(t, name).Status)

	e := b.all(t)[4]
	letters := s.letters(t, name)
	require.Len(t, letters, 1)
	d := letters[0]
	require.True(t, d.FirstFailedAt.Equal(first) && d.LastFailedAt.Equal(b.clock.Now()))
	d.FirstFailedAt, d.LastFailedAt = time.Time{}, time.Time{}
	require.Equal(t, ports.DeadLetter{
		Kind: "projection", Name: name, Version: 1, Partition: b.le.Partition, Sequence: 5, EventID: e.ID,
		Code: "case.broken", Detail: "events of type x", Attempts: 2, Status: ports.LetterWaiting,
	}, d)

	for range 2 { // it stays halted until an operator acts
		c, passed := h.advance(t, name, 4)
		require.Zero(t, passed)
		require.Equal(t, []any{event.Sequence(4), projection.Halted}, []any{c.Sequence, c.Status})
	}
	c, err = b.store.RecordFailure(ctx, h.failure(name, 4))
	require.NoError(t, err)
	require.Equal(t, 2, c.Attempts, "no attempt is made while it is halted")
	require.Equal(t, upTo(4), h.seen)
	h2 := &recorder{partition: other}
	h2.catchUp(t, name, 4)
	require.Equal(t, upTo(10), h2.seen, "the other partitions continue")
}

func passPoison(t *testing.T, s *suite) {
	b := s.ten(t)
	h, name := &recorder{partition: b}, b.unique("projection")
	h.advance(t, name, 4)
	c, err := b.store.Isolate(context.Background(), h.failure(name, 4), projection.SkipEvent)
	require.NoError(t, err)
	require.Equal(t, h.checkpoint(t, name), c)
	require.Equal(t, []any{event.Sequence(5), projection.Reading, "", 0}, []any{c.Sequence, c.Status, c.Error, c.Attempts})
	require.Equal(t, []uint64{4, 1, 1}, []uint64{c.Processed, c.Skipped, c.Failed})
	require.Equal(t, ports.LetterPassed, s.letters(t, name)[0].Status)
	h.catchUp(t, name, 4)
	require.Equal(t, append(upTo(4), 6, 7, 8, 9, 10), h.seen)
	require.Equal(t, ports.LetterPassed, s.letters(t, name)[0].Status, "no handler processed it")
}

func haltProjection(t *testing.T, s *suite) {
	b := s.ten(t)
	h, name := &recorder{partition: b}, b.unique("projection")
	before := h.register(t, name)
	_, err := b.store.Isolate(context.Background(), h.failure(name, 0), projection.StopProjection)
	require.NoError(t, err)
	require.Equal(t, projection.Halted, h.checkpoint(t, name).Status)
	p := s.registered(t, name)
	require.Equal(t, projection.Faulted, p.Status)
	require.Greater(t, p.Revision, before.Revision)
}

func fixPartition(t *testing.T, s *suite) {
	ctx := context.Background()
	h, name, before := s.halted(t)
	c, err := s.store.Fix(ctx, h.operation(name))
	require.NoError(t, err)
	require.Equal(t, []any{event.Sequence(4), projection.Retrying, 0}, []any{c.Sequence, c.Status, c.Attempts})
	p := s.registered(t, name)
	require.Greater(t, p.Revision, before.Revision, "nodes see that something was done")
	require.Equal(t, "ada", p.ChangedBy)
	require.Equal(t, ports.LetterWaiting, s.letters(t, name)[0].Status, "asking for an attempt is not digesting")
	h.catchUp(t, name, 4)
	require.Equal(t, upTo(10), h.seen)
	require.Empty(t, s.letters(t, name, ports.LetterWaiting))
	d := s.letters(t, name, ports.LetterResolved)
	require.Len(t, d, 1)
	require.True(t, d[0].SettledAt.Equal(s.clock.Now()))
}

func skipEvent(t *testing.T, s *suite) {
	ctx := context.Background()
	h, name, before := s.halted(t)
	skip := h.operation(name)
	for _, other := range []event.Sequence{0, 4, 6} {
		skip.Sequence = other
		_, err := s.store.Skip(ctx, skip)
		require.Equal(t, projection.CodeChanged, fault.CodeOf(err), "it is halted at another event")
	}
	require.Equal(t, before.Revision, s.registered(t, name).Revision)
	skip.Sequence = 5
	c, err := s.store.Skip(ctx, skip)
	require.NoError(t, err)
	require.Equal(t, []any{event.Sequence(5), projection.Reading, uint64(1)}, []any{c.Sequence, c.Status, c.Skipped})
	require.Greater(t, s.registered(t, name).Revision, before.Revision)
	d := s.letters(t, name)[0]
	require.Equal(t, []string{ports.LetterSkipped, "ada", "because"}, []string{d.Status, d.SettledBy, d.Reason})
	h.catchUp(t, name, 4)
	require.Equal(t, append(upTo(4), 6, 7, 8, 9, 10), h.seen)
}

func resetPartition(t *testing.T, s *suite) {
	ctx := context.Background()
	h, name, before := s.halted(t)
	broken := errors.New("it cannot forget")
	h.after = func() error { return broken }
	_, err := s.store.Reset(ctx, h.operation(name), h)
	require.ErrorIs(t, err, broken)
	require.Equal(t, event.Sequence(4), h.checkpoint(t, name).Sequence)
	require.NotContains(t, h.committed(t), "reset")
	require.Equal(t, before.Revision, s.registered(t, name).Revision)
	h.after = nil
	c, err := s.store.Reset(ctx, h.operation(name), h)
	require.NoError(t, err)
	require.Equal(t, []any{event.Sequence(0), projection.Reading}, []any{c.Sequence, c.Status})
	require.Equal(t, name, h.committed(t)["reset"])
	require.Greater(t, s.registered(t, name).Revision, before.Revision)
	require.Equal(t, ports.LetterDiscarded, s.letters(t, name)[0].Status)
	h.catchUp(t, name, 4)
	require.Equal(t, append(upTo(4), upTo(10)...), h.seen)
}

func notHalted(t *testing.T, s *suite) {
	b := s.ten(t)
	ctx := context.Background()
	h, name := &recorder{partition: b}, b.unique("projection")
	before := h.register(t, name)
	h.advance(t, name, 4)
	_, err := b.store.RecordFailure(ctx, h.failure(name, 4))
	require.NoError(t, err)
	c := h.checkpoint(t, name)
	_, err = b.store.Fix(ctx, h.operation(name))
	require.Equal(t, "projection.not_halted", fault.CodeOf(err))
	_, err = b.store.Skip(ctx, h.operation(name))
	require.Equal(t, "projection.not_halted", fault.CodeOf(err))
	require.Equal(t, c, h.checkpoint(t, name))
	require.Equal(t, before.Revision, s.registered(t, name).Revision)
}

func fenced(t *testing.T, s *suite) {
	b := s.ten(t)
	ctx := context.Background()
	h, name := &recorder{partition: b}, b.unique("projection")
	resource := []ports.LeaseResource{{Name: name, Partition: b.le.Partition}}
	held, err := s.leases.Hold(ctx, "a", time.Hour, resource)
	require.NoError(t, err)
	step := b.step(name, 1, nil, 2)
	step.Lease = &held[0]
	c, passed, err := b.store.Advance(ctx, step, h)
	require.NoError(t, err)
	require.Equal(t, []any{2, event.Sequence(2), held[0].Term}, []any{passed, c.Sequence, c.Term})

	require.NoError(t, s.leases.Release(ctx, "a", resource))
	refuse := func(lease ports.Lease) {
		t.Helper()
		step := step
		step.Lease = &lease
		_, passed, err := b.store.Advance(ctx, step, h)
		require.Equal(t, "projection.fenced", fault.CodeOf(err))
		require.Equal(t, fault.Conflict, fault.KindOf(err))
		require.Zero(t, passed)
		f := h.failure(name, 2)
		f.Lease = &lease
		_, err = b.store.RecordFailure(ctx, f)
		require.Equal(t, "projection.fenced", fault.CodeOf(err))
		_, err = b.store.Isolate(ctx, f, projection.SkipEvent)
		require.Equal(t, "projection.fenced", fault.CodeOf(err))
		require.Equal(t, c, h.checkpoint(t, name))
	}
	refuse(held[0]) // given back
	taken, err := s.leases.Hold(ctx, "b", time.Hour, resource)
	require.NoError(t, err)
	refuse(held[0]) // taken over
	early := taken[0]
	early.Term--
	refuse(early)
	unknown := taken[0]
	unknown.Partition++
	refuse(unknown)
	require.Equal(t, upTo(2), h.seen, "the handler is not even called")

	step.Lease = &taken[0]
	c, _, err = b.store.Advance(ctx, step, h)
	require.NoError(t, err)
	require.Equal(t, taken[0].Term, c.Term)
	require.Equal(t, upTo(4), h.seen)
}

func expiredLease(t *testing.T, s *suite) {
	b := s.ten(t)
	ctx := context.Background()
	h, name := &recorder{partition: b}, b.unique("projection")
	held, err := s.leases.Hold(ctx, "a", time.Microsecond, []ports.LeaseResource{{Name: name}})
	require.NoError(t, err)
	b.clock.Advance(time.Second)
	step := b.step(name, 1, nil, 2)
	step.Lease = &held[0]
	_, passed, err := b.store.Advance(ctx, step, h)
	require.NoError(t, err)
	require.Equal(t, 2, passed)
}

func letterPages(t *testing.T, s *suite) {
	b, other := s.ten(t), s.ten(t)
	ctx := context.Background()
	name := b.unique("projection")
	for _, partition := range []*partition{b, other} {
		h := &recorder{partition: partition}
		for at := range event.Sequence(3) {
			_, err := s.store.Isolate(ctx, h.failure(name, at), projection.SkipEvent)
			require.NoError(t, err)
		}
	}
	q := ports.DeadLetterQuery{Name: name, Limit: 4}
	first, err := s.store.ListDeadLetters(ctx, q)
	require.NoError(t, err)
	require.Len(t, first, 4)
	q.After = &first[3]
	rest, err := s.store.ListDeadLetters(ctx, q)
	require.NoError(t, err)
	require.Len(t, rest, 2)
	require.Equal(t, s.letters(t, name), append(first, rest...))
	require.Empty(t, s.letters(t, name, ports.LetterWaiting))
	require.Len(t, s.letters(t, name, ports.LetterWaiting, ports.LetterPassed), 6)
	one, err := s.store.ListDeadLetters(ctx, ports.DeadLetterQuery{Name: name, Partitions: []event.PartitionID{other.le.Partition}})
	require.NoError(t, err)
	require.Len(t, one, 3)
	none, err := s.store.ListDeadLetters(ctx, ports.DeadLetterQuery{Kind: "unknown"})
	require.NoError(t, err)
	require.Empty(t, none)
}

var registerPromises = []promise{
	{"projection is registered once", registerOnce},
	{"version beside another needs an active one", registerBeside},
	{"one of many changes a revision", registerRace},
	{"changes are read", registerChange},
}

func registerOnce(t *testing.T, s *suite) {
	h, name := &recorder{partition: s.newPartition(t)}, s.unique("projection")
	p := h.register(t, name)
	require.EqualValues(t, 1, p.Revision)
	require.True(t, p.CreatedAt.Equal(s.clock.Now()))
	require.Equal(t, p, s.registered(t, name))
	p.Status = projection.Stopped
	changed, err := s.store.ChangeProjection(context.Background(), p)
	require.NoError(t, err)
	require.Equal(t, changed, h.register(t, name), "what an operator decided stays")
}

func registerBeside(t *testing.T, s *suite) {
	for _, role := range []projection.Role{projection.Building, projection.Saving} {
		name := s.unique("projection")
		_, err := s.store.AddProjection(context.Background(), projection.Projection{
			Name: name, Version: 2, Role: role, Status: projection.Running, Settings: projection.DefaultSettings(), ChangedBy: "suite",
		})
		require.Equal(t, "projection.not_found", fault.CodeOf(err), role)
		all, err := s.store.NamedProjections(context.Background(), name)
		require.NoError(t, err)
		require.Empty(t, all, role)
	}
}

func registerChange(t *testing.T, s *suite) {
	ctx := context.Background()
	h, name := &recorder{partition: s.newPartition(t)}, s.unique("projection")
	p := h.register(t, name)
	p.Status, p.ChangedBy = projection.Paused, "ada"
	p.Settings.BatchSize, p.Settings.Checkpoint = 7, projection.Checkpointing{Mode: projection.Batched, Events: 3, WaitMS: 9}
	s.clock.Advance(time.Second)
	changed, err := s.store.ChangeProjection(ctx, p)
	require.NoError(t, err)
	require.Equal(t, p.Revision+1, changed.Revision)
	require.True(t, changed.ChangedAt.Equal(s.clock.Now()))
	p.Revision, p.ChangedAt = changed.Revision, changed.ChangedAt
	require.Equal(t, p, changed)
	require.Equal(t, changed, s.registered(t, name))
	p.Name = "unknown"
	_, err = s.store.ChangeProjection(ctx, p)
	require.Equal(t, "projection.not_found", fault.CodeOf(err))
}

func registerRace(t *testing.T, s *suite) {
	h := &recorder{partition: s.newPartition(t)}
	for range races {
		p := h.register(t, s.unique("projection"))
		p.Status = projection.Paused
		oneWinner(t, race(6, func(int) error { _, err := s.store.ChangeProjection(context.Background(), p); return err }), "projection.changed")
	}
}
