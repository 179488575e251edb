// Package jobs runs verifications of a tenant's logs inside a node, so that an auditor
// needs no access to the database. Service starts, lists and cancels them for the HTTP API.
//
// The administrative log of the tenant is the only record of a run: who started it, the result
// for each log, and how it ended. So the history of runs is tamper evident like all others, and
// every node answers for every run. Only the progress within one log is in the memory of the
// node that runs it.
//
// A tenant has one run at a time, settled by a lease that the run renews. A run whose node died
// no longer holds the lease, and counts as interrupted; the next start records that. The
// expected version of the run's stream settles the race of its end and a cancellation.
package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// State is how far a run is.
type State string

// The states. All but Running are final.
const (
	Running     State = "running"
	Sound       State = "sound"       // no damage in what was checked
	Tampered    State = "tampered"    // findings say where
	Failed      State = "failed"      // something could not be read; what was checked until then stays
	Cancelled   State = "cancelled"   // by a person
	Interrupted State = "interrupted" // its node stopped or lost the lease
)

// Run is a verification and its results so far.
type Run struct {
	ID        event.ID
	State     State
	Started   StartedData
	StartedBy string // person or service
	StartedAt time.Time
	EndedBy   string
	EndedAt   time.Time // zero while it runs, and for an interrupted one that no later run has recorded
	Findings  int
	Code      string // of the fault that ended a failed one

	Checked    []CheckedData
	EventTypes []RegistryData
	Erasures   *ErasuresData // nil: not compared
	// Current is the log that is being checked, Done the number of events checked so far. A node
	// that does not run it counts whole logs only.
	Current string
	Done    uint64
}

// Log is the administrative log of each tenant: administration.Log.
type Log interface {
	Of(ctx context.Context, tenantID string) (ports.LegalEntity, error)
	Record(ctx context.Context, tenantID string, actor event.Actor, expected concurrency.StreamExpectation, drafts ...event.Draft) error
}

// Reader reads the events of runs.
type Reader interface {
	ports.EventReader
	StreamStatus(ctx context.Context, p event.PartitionID, s event.StreamID) (ports.StreamStatus, error)
}

// Config is what a Service needs; all but DataKeys is required.
type Config struct {
	Log    Log
	Events Reader
	Leases ports.Leases
	// Check verifies logs of a tenant, given by the codes of their legal entities, and calls take with
	// the report of each.
	Check func(ctx context.Context, tenantID string, codes []string, progress verify.Progress, take func(*verify.EntityReport) error, options ...verify.Option) error
	// Registries verifies the shared registry of event types and the tenant's.
	Registries func(ctx context.Context, tenantID string, options ...verify.Option) ([]verify.RegistryReport, error)
	// CompareErased compares the receipts of a tenant's erasures with the key store, and returns what is
	// wrong; compared is false where there are none.
	CompareErased func(ctx context.Context, tenantID string) (finding string, compared bool, err error)
	DataKeys      ports.DataKeys // open the keys of persons; nil: a request to open them is refused
	LogName       string         // of the installation
	Node          string         // unique among the nodes
	Clock         ports.Clock
	IDs           ports.IDSource
	Logger        *slog.Logger
}

// Service runs verifications, one at a time on a node.
type Service struct {
	Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu      sync.Mutex
	current *job           // nil: none runs here
	running sync.WaitGroup // the current job, from before its start is recorded
}

// New makes a Service. Close ends its run.
func New(c Config) *Service {
	s := &Service{Config: c}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close interrupts the run of this node and waits until that is recorded.
func (s *Service) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.running.Wait()
}

const (
	leaseName = "verification"
	leaseTTL  = 30 * time.Second
	// renewal is how often a run renews its lease and looks whether it was cancelled elsewhere.
	renewal = 5 * time.Second
	// maxPerHour bounds the runs that a tenant starts in an hour, each of which reads whole logs
	// and adds to the administrative log.
	maxPerHour = 20
	// closing bounds how long an interrupted run takes to record that.
	closing = 5 * time.Second
)

// node is the actor of what a run records by itself.
var node = event.Actor{Type: event.System, ID: "backbone", Name: "verification"}

// Request asks for a run.
type Request struct {
	Logs        []ports.LegalEntity // in the order of the checks; at least one
	WholeTenant bool                // Logs are all of the tenant; check the registries of event types and the receipts of erasures too
	OpenKeys    bool                // open every key of a person
	Heads       *verify.Heads       // that the logs must contain; nil: none
}

// Start starts a run on this node and returns as soon as it is recorded.
//
// Faults: verification.running (Conflict) if the tenant has a run; verification.busy (Unavailable)
// if this node has one; verification.too_many (TooMany) after maxPerHour; verification.heads_foreign
// (Invalid) for heads of other tenants only; verification.keys_missing (FailedPrecondition);
// legal_entity.not_found (NotFound) for a request without a log.
func (s *Service) Start(ctx context.Context, tenantID string, by event.Actor, r Request) (Run, error) {
	if r.OpenKeys && s.DataKeys == nil {
		return Run{}, fault.New(fault.FailedPrecondition, "verification.keys_missing", "this node has no key service, so it cannot open keys; verify without open_keys").WithField("/open_keys")
	}
	if len(r.Logs) == 0 { // verify.Run would take no code for all
		return Run{}, fault.New(fault.NotFound, "legal_entity.not_found", "there is no legal entity that you may see, so there is nothing to verify; GET /api/admin/legal-entities lists them")
	}
	j := &job{service: s, tenantID: tenantID, id: s.IDs.NewID(s.Clock.Now()), version: 1, whole: r.WholeTenant, openKeys: r.OpenKeys}
	for _, le := range r.Logs {
		j.codes = append(j.codes, le.Code)
	}
	if r.Heads != nil {
		heads, err := ofTenant(*r.Heads, tenantID)
		if err != nil {
			return Run{}, err
		}
		j.heads = heads
	}
	for {
		ending, err := s.reserve(j)
		if err == nil {
			break
		}
		if ending == nil {
			return Run{}, err
		}
		select {
		case <-ending:
		case <-ctx.Done():
			return Run{}, err
		}
	}
	if err := s.begin(ctx, j, by, r); err != nil {
		j.release(ctx)
		s.free()
		return Run{}, err
	}
	go func() {
		defer s.free()
		j.run()
	}()
	return s.Get(ctx, tenantID, j.id)
}

// ofTenant returns the heads of one tenant, and of what all tenants share.
func ofTenant(h verify.Heads, tenantID string) (*verify.Heads, error) {
	h.Partitions = slices.DeleteFunc(slices.Clone(h.Partitions), func(p verify.Head) bool { return p.Tenant != tenantID })
	h.Registries = slices.DeleteFunc(slices.Clone(h.Registries), func(r verify.RegistryHead) bool { return r.Tenant != tenantID })
	if len(h.Partitions) == 0 {
		return nil, fault.New(fault.Invalid, "verification.heads_foreign", "none of these heads is of your tenant; send the heads that were exported from it").WithField("/heads")
	}
	return &h, nil
}

// reserve takes the place of the node's run. If the tenant's last run is ending, which a caller may have
// seen in the log before its lease is free, it returns what is closed when another run can start.
func (s *Service) reserve(j *job) (ending <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || s.current != nil && s.current.tenantID != j.tenantID {
		return nil, fault.New(fault.Unavailable, "verification.busy", "this node runs a verification already; try again when it has ended").WithRetryAfter(time.Minute)
	}
	if s.current != nil {
		if s.current.ending.Load() {
			ending = s.current.gone
		}
		return ending, alreadyRunning()
	}
	s.current, j.gone = j, make(chan struct{})
	s.running.Add(1) // under the lock, so that Close waits for a start that it does not prevent
	j.ctx, j.stop = context.WithCancel(s.ctx)
	return nil, nil
}

func (s *Service) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.stop()
	close(s.current.gone)
	s.current = nil
	s.running.Done()
}

func alreadyRunning() error {
	return fault.New(fault.Conflict, "verification.running", "a verification of your tenant runs already; GET /api/verifications shows it. Wait for its end or cancel it")
}

// begin takes the lease of the tenant and records the start.
func (s *Service) begin(ctx context.Context, j *job, by event.Actor, r Request) (err error) {
	if j.log, err = s.Log.Of(ctx, j.tenantID); err != nil {
		return err
	}
	if held, err := j.hold(ctx); err != nil {
		return err
	} else if !held {
		return alreadyRunning()
	}
	recent, err := s.recent(ctx, j.log, maxPerHour)
	if err != nil {
		return err
	}
	if len(recent) == maxPerHour {
		if over := s.Clock.Now().Sub(recent[maxPerHour-1].StartedAt); over < time.Hour {
			return fault.New(fault.TooMany, "verification.too_many", "a tenant starts at most %d verifications in an hour; try again later", maxPerHour).WithRetryAfter(time.Hour - over)
		}
	}
	for _, earlier := range recent {
		if earlier.EndedAt.IsZero() { // no other run holds the lease, so its node is gone
			if err := s.recordInterruption(ctx, j.log, earlier.ID); err != nil {
				return err
			}
		}
	}
	partitions := make([]event.PartitionID, len(r.Logs))
	for i, le := range r.Logs {
		partitions[i] = le.Partition
	}
	heads, err := s.Events.Heads(ctx, partitions)
	if err != nil {
		return err
	}
	data := StartedData{LegalEntities: j.codes, WholeTenant: r.WholeTenant, OpenKeys: r.OpenKeys}
	for _, h := range heads {
		data.Events += uint64(h.Sequence)
	}
	if j.heads != nil {
		text, err := json.Marshal(j.heads)
		if err != nil {
			return err
		}
		digest := sha256.Sum256(text)
		data.ReferenceSHA256 = hex.EncodeToString(digest[:])
	}
	return s.Log.Record(ctx, j.tenantID, by, concurrency.StreamExpectation{Stream: streamOf(j.id), Expected: concurrency.NoStream()},
		draft(Started, j.id, data))
}

// recordInterruption ends a run whose node is gone, unless it has ended.
func (s *Service) recordInterruption(ctx context.Context, log ports.LegalEntity, id event.ID) error {
	_, err := s.end(ctx, log, id, node, Interrupted)
	if code := fault.CodeOf(err); code == "verification.ended" {
		return nil
	}
	return err
}

// end records the end of a run from outside of it. Fault verification.ended if it has ended.
func (s *Service) end(ctx context.Context, log ports.LegalEntity, id event.ID, by event.Actor, state State) (Run, error) {
	for {
		r, version, err := s.read(ctx, log, id)
		if err != nil {
			return r, err
		}
		if !r.EndedAt.IsZero() {
			return r, fault.New(fault.Conflict, "verification.ended", "the verification has ended: it is %s; read its results", r.State)
		}
		err = s.Log.Record(ctx, log.TenantID, by, concurrency.StreamExpectation{Stream: streamOf(id), Expected: concurrency.Exactly(version)},
			draft(Ended, id, EndedData{
				Outcome: string(state), Findings: r.Findings, EventTypes: []RegistryData{},
			}))
		if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion && ctx.Err() == nil {
			continue // the run recorded another result
		}
		return r, err
	}
}

// Cancel ends a run wherever it runs. Its node stops within renewal. Faults:
// verification.not_found, verification.ended.
func (s *Service) Cancel(ctx context.Context, tenantID string, id event.ID, by event.Actor) (Run, error) {
	log, err := s.Log.Of(ctx, tenantID)
	if err != nil {
		return Run{}, err
	}
	if r, err := s.end(ctx, log, id, by, Cancelled); err != nil {
		return r, err
	}
	s.mu.Lock()
	if s.current != nil && s.current.id == id {
		s.current.stop()
	}
	s.mu.Unlock()
	return s.Get(ctx, tenantID, id)
}

// Get returns a run with its results so far. Fault verification.not_found.
func (s *Service) Get(ctx context.Context, tenantID string, id event.ID) (Run, error) {
	log, err := s.Log.Of(ctx, tenantID)
	if err != nil {
		return Run{}, err
	}
	r, _, err := s.read(ctx, log, id)
	if err != nil || r.State != Running {
		return r, err
	}
	s.mu.Lock()
	here := s.current
	s.mu.Unlock()
	if here != nil && here.id == id {
		here.progress(&r)
		return r, nil
	}
	return r, s.findInterrupted(ctx, log, []*Run{&r})
}

// List returns the newest runs of a tenant without the results for each log, newest first.
func (s *Service) List(ctx context.Context, tenantID string, limit int) ([]Run, error) {
	log, err := s.Log.Of(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	runs, err := s.recent(ctx, log, limit)
	if err != nil {
		return nil, err
	}
	var open []*Run
	for i := range runs {
		if runs[i].State == Running {
			open = append(open, &runs[i])
		}
	}
	return runs, s.findInterrupted(ctx, log, open)
}

// findInterrupted marks the runs of a tenant that no node runs any more.
func (s *Service) findInterrupted(ctx context.Context, log ports.LegalEntity, open []*Run) error {
	if len(open) == 0 {
		return nil
	}
	leases, err := s.Leases.List(ctx, leaseName)
	if err != nil {
		return err
	}
	for _, r := range open {
		// The clock of this node and the store's may differ; a lease is renewed long before it ends.
		held := slices.ContainsFunc(leases, func(l ports.Lease) bool {
			return l.Partition == log.Partition && isHolder(l.Holder, r.ID) && s.Clock.Now().Before(l.ExpiresAt.Add(leaseTTL))
		})
		if !held {
			r.State = Interrupted
		}
	}
	return nil
}

// recent returns the newest runs without the results for each log.
func (s *Service) recent(ctx context.Context, log ports.LegalEntity, limit int) ([]Run, error) {
	// A run begins before it ends, so the newest ends belong to no more starts than there are.
	events, err := s.Events.Events(ctx, ports.EventQuery{
		Partition: log.Partition, Types: []string{Started, Ended}, Direction: ports.Backward, Limit: 2 * limit,
	})
	if err != nil {
		return nil, err
	}
	ends := map[string]*event.Recorded{}
	var runs []Run
	for i := range events {
		e := &events[i]
		if e.Type == Ended {
			ends[e.Stream.ID] = e
			continue
		}
		r := Run{State: Running}
		if err := r.add(e); err != nil {
			return nil, err
		}
		if end := ends[e.Stream.ID]; end != nil {
			if err := r.add(end); err != nil {
				return nil, err
			}
		}
		if runs = append(runs, r); len(runs) == limit {
			break
		}
	}
	return runs, nil
}

// read folds the events of a run. Fault verification.not_found.
func (s *Service) read(ctx context.Context, log ports.LegalEntity, id event.ID) (Run, event.Version, error) {
	events, err := s.Events.EventsOfStream(ctx, log.Partition, streamOf(id), 1, 0)
	if err != nil {
		return Run{}, 0, err
	}
	if len(events) == 0 {
		return Run{}, 0, fault.New(fault.NotFound, "verification.not_found", "there is no verification with this id that you may see; GET /api/verifications lists them")
	}
	r := Run{State: Running}
	for i := range events {
		if err := r.add(&events[i]); err != nil {
			return Run{}, 0, err
		}
	}
	return r, events[len(events)-1].StreamVersion, nil
}

// add folds the next event of the run.
func (r *Run) add(e *event.Recorded) error {
	data, err := e.Data()
	if err != nil {
		return err
	}
	switch e.Type {
	case Started:
		r.StartedBy, r.StartedAt = e.ActorID, e.RecordedAt
		if r.ID, err = event.ParseID(e.Stream.ID); err == nil {
			err = json.Unmarshal(data, &r.Started)
		}
	case Checked:
		var checked CheckedData
		err = json.Unmarshal(data, &checked)
		r.Checked = append(r.Checked, checked)
		r.Done += checked.Events
		r.Findings += len(checked.Findings) + checked.Suppressed
	case Ended:
		var ended EndedData
		err = json.Unmarshal(data, &ended)
		r.State, r.Findings, r.Code, r.EventTypes, r.Erasures = State(ended.Outcome), ended.Findings, ended.Code, ended.EventTypes, ended.Erasures
		r.EndedBy, r.EndedAt = e.ActorID, e.RecordedAt
	}
	return err
}

// Heads returns the heads of what a run has checked, to compare a later state with. They prove
// something only if the run is sound.
func (s *Service) Heads(tenantID string, r Run) verify.Heads {
	h := verify.Heads{LogName: s.LogName, Time: r.StartedAt, Partitions: []verify.Head{}}
	for _, c := range r.Checked {
		checksum := c.Checksum
		if c.Head == 0 {
			genesis := event.GenesisChecksum(s.LogName, c.Partition)
			checksum = hex.EncodeToString(genesis[:])
		}
		h.Partitions = append(h.Partitions, verify.Head{Tenant: tenantID, LegalEntity: c.LegalEntity, Partition: c.Partition, Sequence: c.Head, Checksum: checksum})
	}
	for _, e := range r.EventTypes {
		head := verify.RegistryHead{Tenant: e.Tenant, Change: e.Head, Checksum: e.Checksum}
		switch {
		case e.Head == 0:
		case e.Tenant == "":
			h.Registry = &head
		default:
			h.Registries = append(h.Registries, head)
		}
	}
	return h
}
