package administration

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// EventTypes is the registries of event types. That of a tenant is what its administrative log
// makes of the registry that an earlier release left: a version that no event registered does
// not exist, and a row that is not as its chain recorded it holds up the tenant. Built-in types
// are rows, because they come before any log; each log lists them.
type EventTypes struct {
	shared ports.SharedEventTypes

	// Set by SetLog.
	log     *Log
	chains  ports.ChainReader
	heads   Heads
	builtIn []module.EventType

	declaring    ports.Lock // guards the next two
	declaredAt   int64      // the generation of the built-in types
	declaredRows []declaredVersion

	reading ports.Lock // guards what follows
	folds   map[event.PartitionID]*typeFold
	formers map[string]*registryState // by tenant, those that were checked
}

var _ ports.EventTypes = (*EventTypes)(nil)

// NewEventTypes makes the registries. Before SetLog there are the built-in types only.
func NewEventTypes(shared ports.SharedEventTypes) *EventTypes {
	return &EventTypes{shared: shared, declaring: ports.NewLock(), reading: ports.NewLock(), folds: map[event.PartitionID]*typeFold{}, formers: map[string]*registryState{}}
}

// SetLog adds the registries of tenants and lets every log list the built-in types of this
// release. It is called once, before log begins logs: the registry is needed to append to one.
func (t *EventTypes) SetLog(log *Log, chains ports.ChainReader, heads Heads, builtIn []module.EventType) {
	t.log, t.chains, t.heads, t.builtIn = log, chains, heads, builtIn
	log.concerns = append(log.concerns, t.begin)
}

// begin records the end of the registry of earlier releases, once, and the built-in types of
// this release.
func (t *EventTypes) begin(ctx context.Context, log ports.LegalEntity) error {
	exists, err := t.log.exists(ctx, log, historySealed)
	if err != nil {
		return err
	}
	if !exists {
		own, err := t.shared.RegistryRecord(ctx, log.TenantID)
		if err != nil {
			return err
		}
		shared, err := t.shared.RegistryRecord(ctx, "")
		if err != nil {
			return err
		}
		data := sealedData{}
		data.LastChange, data.Checksum = endOf(&own)
		data.SharedLastChange, data.SharedChecksum = endOf(&shared)
		if err := t.log.appendIfAbsent(ctx, log, draft(EventTypeHistorySealed, historySealed, data)); err != nil {
			return err
		}
	}
	return t.listBuiltIn(ctx, log)
}

// endOf is the last change of a chain and its checksum.
func endOf(r *ports.RegistryRecord) (number int64, checksum string) {
	end := eventtype.ChainStart(r.TenantID)
	if n := len(r.Changes); n > 0 {
		number, end = r.Changes[n-1].Number, r.Changes[n-1].Checksum
	}
	return number, hex.EncodeToString(end[:])
}

// listBuiltIn records the built-in types that the log does not list. Rows of types that this
// release does not declare are never listed.
func (t *EventTypes) listBuiltIn(ctx context.Context, log ports.LegalEntity) error {
	for try := 1; ; try++ {
		f, err := t.fold(ctx, log.TenantID)
		if err != nil {
			return err
		}
		declared, err := t.declaredVersions(ctx)
		if err != nil {
			return err
		}
		data := builtInData{Versions: []versionData{}}
		for _, v := range declared {
			// A version that was listed otherwise was edited: it is not listed again.
			if !f.listed[v.versionData] && (v.isAmendment || !f.lists(v.versionData)) {
				data.Versions = append(data.Versions, v.versionData)
			}
		}
		if len(data.Versions) == 0 {
			return nil
		}
		expected := concurrency.StreamExpectation{Stream: builtInTypes, Expected: expectVersion(f.listVersion)}
		err = t.log.writer.Write(ctx, Write{Log: log, Actor: operator, Drafts: []event.Draft{draft(EventTypesBuiltIn, builtInTypes, data)}, Streams: []concurrency.StreamExpectation{expected}})
		if fault.CodeOf(err) != concurrency.CodeWrongExpectedVersion || try == saveTries {
			return err
		}
	}
}

// declaredVersion is a row of a built-in version that this release declares.
type declaredVersion struct {
	versionData
	isAmendment bool
}

// declaredVersions lists the rows of the built-in versions that this release declares, each with its
// amendments, in their order. A row that is no amendment of those before it is left out. The rows
// are read once in a process, as long as there is none more.
func (t *EventTypes) declaredVersions(ctx context.Context) ([]declaredVersion, error) {
	generation, err := t.shared.SharedGeneration(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.declaring.Acquire(ctx); err != nil {
		return nil, err
	}
	defer t.declaring.Release()
	if t.declaredAt == generation && t.declaredRows != nil {
		return t.declaredRows, nil
	}
	record, err := t.shared.RegistryRecord(ctx, "")
	if err != nil {
		return nil, err
	}
	rows := []declaredVersion{}
	var before *ports.StoredVersion
	for i := range record.Versions {
		v := &record.Versions[i]
		if !slices.ContainsFunc(t.builtIn, func(e module.EventType) bool { return e.Type == v.Type && e.SchemaVersion == v.SchemaVersion }) {
			continue
		}
		if v.Amendment > 0 && before != nil && before.Type == v.Type && before.SchemaVersion == v.SchemaVersion {
			amends, err := amendsRow(before, v)
			if err != nil {
				return nil, err
			}
			if !amends {
				continue
			}
		}
		before = v
		rows = append(rows, declaredVersion{versionData{v.Type, v.SchemaVersion, hex.EncodeToString(v.Digest[:])}, v.Amendment > 0})
	}
	t.declaredAt, t.declaredRows = generation, rows
	return rows, nil
}

// amendsRow reports whether a row of a version amends the row before it.
func amendsRow(before, amendment *ports.StoredVersion) (bool, error) {
	a, err := eventtype.ParseDocument(before.Document)
	if err != nil {
		return false, err
	}
	b, err := eventtype.ParseDocument(amendment.Document)
	return err == nil && eventtype.Amends(&a, &b), err
}

// EventTypes implements ports.EventTypes. Faults administration.log_broken, and
// event_type.record_broken when the registry of an earlier release is not as it was recorded.
func (t *EventTypes) EventTypes(ctx context.Context, tenantID string) ([]eventtype.Registration, int64, error) {
	if tenantID == "" {
		return t.shared.SharedEventTypes(ctx)
	}
	s, err := t.current(ctx, tenantID)
	if err != nil {
		return nil, 0, err
	}
	names := make([]string, 0, len(s.versions))
	for of := range s.versions {
		names = append(names, of.name)
	}
	slices.Sort(names)
	numbers, err := t.shared.ReserveEventTypes(ctx, slices.Compact(names))
	if err != nil {
		return nil, 0, err
	}
	out := make([]eventtype.Registration, 0, len(s.versions))
	for of, v := range s.versions {
		r, err := eventtype.ParseDocument(v.document)
		if err != nil {
			return nil, 0, err
		}
		r.TenantID, r.Number, r.RegisteredAt, r.RegisteredBy = tenantID, numbers[of.name].Number, v.first.At, v.first.Actor
		if r.Schemas, err = v.schemas(); err != nil {
			return nil, 0, err
		}
		if v.state.Proposal != nil && v.state.Proposal.Action == eventtype.ActionAmendmentProposed {
			proposed, err := eventtype.ParseDocument(v.proposed)
			if err != nil {
				return nil, 0, err
			}
			proposed.TenantID, proposed.Number, proposed.Amends, proposed.Proposal = tenantID, r.Number, true, v.state.Proposal
			r.Amendment = &proposed
		}
		out = append(out, r.In(v.state))
	}
	slices.SortFunc(out, func(a, b eventtype.Registration) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), cmp.Compare(a.SchemaVersion, b.SchemaVersion))
	})
	return out, s.generation, nil
}

// unreadable is the generation of a registry whose log is broken or could not be read, so that loading
// it reports why.
const unreadable = -1

// EventTypeGenerations implements ports.EventTypes.
func (t *EventTypes) EventTypeGenerations(ctx context.Context) (map[string]int64, error) {
	shared, err := t.shared.SharedGeneration(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	if shared > 0 {
		out[""] = shared
	}
	if t.log == nil {
		return out, nil
	}
	return out, t.read(ctx, "", func() {
		for _, f := range t.folds {
			switch {
			case f.broken != nil:
				out[f.log.TenantID] = unreadable
			case f.generation() > 0:
				out[f.log.TenantID] = f.generation()
			}
		}
	})
}

// RegisterEventType implements ports.EventTypes.
func (t *EventTypes) RegisterEventType(ctx context.Context, r eventtype.Registration) (eventtype.Registration, error) {
	if r.TenantID == "" {
		return t.shared.RegisterEventType(ctx, r)
	}
	return t.register(ctx, r, nil)
}

// RegisterEventTypeAt implements ports.EventTypes.
func (t *EventTypes) RegisterEventTypeAt(ctx context.Context, r eventtype.Registration, generation int64) (eventtype.Registration, error) {
	return t.register(ctx, r, &generation)
}

func (t *EventTypes) register(ctx context.Context, r eventtype.Registration, at *int64) (out eventtype.Registration, err error) {
	document, err := r.Document()
	if err != nil {
		return out, err
	}
	if !utf8.Valid(document) {
		return out, fault.New(fault.Invalid, "event_type.schema_invalid", "schema and examples must be UTF-8; correct them")
	}
	// The name comes first: a built-in type of the same name is refused from here on.
	names, err := t.shared.ReserveEventTypes(ctx, []string{r.Type})
	if err != nil {
		return out, err
	}
	if names[r.Type].IsShared {
		return out, eventtype.OwnedByModule(r.Type)
	}
	digest := sha256.Sum256(document)
	by := r.By
	if by.ID == "" && r.RegisteredBy != "" {
		by = event.Actor{Type: event.Human, ID: r.RegisteredBy}
	}
	err = t.write(ctx, r.TenantID, r.Type, at, by, func(s *registryState) ([]event.Draft, error) {
		c := r.Registered(digest)
		switch v := s.versions[typeVersion{r.Type, r.SchemaVersion}]; {
		case v == nil && r.Amends:
			return nil, eventtype.NotRegistered(r.Type)
		case v != nil && !r.Amends:
			return nil, eventtype.Duplicate(r.Type, r.SchemaVersion)
		case v != nil:
			if err := v.of(r.SchemaVersion).CheckAmendment(&c); err != nil {
				return nil, err
			}
		}
		return []event.Draft{changeDraft(&c, document)}, nil
	})
	if fault.CodeOf(err) == "append.event_too_large" {
		err = eventtype.TooLarge()
	}
	if err != nil {
		return out, err
	}
	types, _, err := t.EventTypes(ctx, r.TenantID)
	for _, stored := range types {
		if stored.Type == r.Type && stored.SchemaVersion == r.SchemaVersion {
			out = stored
		}
	}
	return out, err
}

// ChangeEventType implements ports.EventTypes.
func (t *EventTypes) ChangeEventType(ctx context.Context, c eventtype.Change) ([]eventtype.Change, error) {
	return t.change(ctx, c, nil)
}

// ChangeEventTypeAt implements ports.EventTypes.
func (t *EventTypes) ChangeEventTypeAt(ctx context.Context, c eventtype.Change, generation int64) ([]eventtype.Change, error) {
	return t.change(ctx, c, &generation)
}

func (t *EventTypes) change(ctx context.Context, c eventtype.Change, at *int64) (out []eventtype.Change, err error) {
	by := c.By
	if by.ID == "" {
		by = event.Actor{Type: event.Human, ID: c.Actor}
	}
	err = t.write(ctx, c.TenantID, c.Type, at, by, func(s *registryState) ([]event.Draft, error) {
		if out, err = eventtype.ChangeVersions(s.versionsOf(c.Type), c); err != nil {
			return nil, err
		}
		drafts := make([]event.Draft, len(out))
		for i := range out {
			var document []byte
			if out[i].Action == eventtype.ActionAmended {
				document = s.versions[typeVersion{out[i].Type, out[i].SchemaVersion}].proposed
			}
			drafts[i] = changeDraft(&out[i], document)
		}
		return drafts, nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// write appends what plan makes of the registry to the stream of a type; with at only if the
// registry is at that generation. The expected version of the stream settles races.
func (t *EventTypes) write(ctx context.Context, tenantID, name string, at *int64, by event.Actor, plan func(*registryState) ([]event.Draft, error)) error {
	if t.log == nil {
		return errors.New("event types of tenants need a log")
	}
	log, err := t.log.Of(ctx, tenantID)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		s, err := t.current(ctx, tenantID)
		if err != nil {
			return err
		}
		if at != nil && s.generation != *at {
			return eventtype.RegistryMoved()
		}
		w := writeBy(log, by)
		if w.Drafts, err = plan(s); err != nil || len(w.Drafts) == 0 {
			return err
		}
		w.Streams = []concurrency.StreamExpectation{{Stream: typeStreamOf(name), Expected: expectVersion(s.streams[name])}}
		err = t.log.writer.Write(ctx, w)
		switch {
		case err == nil:
			// A node that misses it looks at every interval.
			_ = t.shared.AnnounceEventTypes(ctx)
			return nil
		case fault.CodeOf(err) != concurrency.CodeWrongExpectedVersion:
			return err
		case at != nil || try == saveTries:
			return eventtype.RegistryMoved()
		}
	}
}

// EventTypeHistory implements ports.EventTypes: what the chain of earlier releases has, and then
// what the log has, or for built-in types their further versions.
func (t *EventTypes) EventTypeHistory(ctx context.Context, tenantID, name string) ([]eventtype.Change, error) {
	record, err := t.shared.RegistryRecord(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	all := record.Changes
	if tenantID == "" {
		all = append(all, registeredSince(&record)...)
	} else {
		f, err := t.fold(ctx, tenantID)
		if err != nil {
			return nil, err
		}
		for i := range f.changes {
			all = append(all, f.changes[i].Change)
		}
	}
	return slices.DeleteFunc(append([]eventtype.Change{}, all...), func(c eventtype.Change) bool { return name != "" && c.Type != name }), nil
}

// registeredSince are the registrations of built-in types that are not in the chain.
func registeredSince(record *ports.RegistryRecord) (out []eventtype.Change) {
	chained := map[typeVersion]bool{}
	for _, c := range record.Changes {
		chained[typeVersion{c.Type, c.SchemaVersion}] = true
	}
	for _, v := range record.Versions {
		action := eventtype.ActionRegistered
		if v.Amendment > 0 {
			action = eventtype.ActionAmended
		}
		if v.Amendment > 0 || !chained[typeVersion{v.Type, v.SchemaVersion}] {
			out = append(out, eventtype.Change{Action: action, Type: v.Type, SchemaVersion: v.SchemaVersion, Digest: v.Digest, Actor: v.By, At: v.At})
		}
	}
	slices.SortStableFunc(out, func(a, b eventtype.Change) int { return a.At.Compare(b.At) })
	for i := range out {
		out[i].Number = record.Generation + int64(i) + 1
	}
	return out
}

// typeVersion is one version of one type.
type typeVersion struct {
	name   string
	number uint32
}

// registryState is a registry at a generation.
type registryState struct {
	generation int64
	versions   map[typeVersion]*registeredVersion
	streams    map[string]event.Version // by type
}

type registeredVersion struct {
	first    eventtype.Change // that registered or proposed it
	digest   [sha256.Size]byte
	document []byte // as it was last amended
	proposed []byte // the document of the amendment that was last proposed
	state    eventtype.State
	former   []datedDocument  // those that amendments replaced
	since    eventtype.Change // that made the document take effect
}

// datedDocument is a document with the change that made it take effect.
type datedDocument struct {
	since    eventtype.Change
	document []byte
}

// of is the version for the rules of changes.
func (v *registeredVersion) of(number uint32) *eventtype.VersionState {
	return &eventtype.VersionState{SchemaVersion: number, Digest: v.digest, State: v.state}
}

// schemas lists the schemas that the version had and has; nil unless it was amended.
func (v *registeredVersion) schemas() (out []eventtype.SchemaSince, err error) {
	if len(v.former) == 0 {
		return nil, nil
	}
	for _, d := range append(slices.Clone(v.former), datedDocument{v.since, v.document}) {
		r, err := eventtype.ParseDocument(d.document)
		if err != nil {
			return nil, err
		}
		out = append(out, eventtype.SchemaSince{DataSchema: r.DataSchema, At: d.since.At, By: d.since.Actor})
	}
	return out, nil
}

func newRegistryState() *registryState {
	return &registryState{versions: map[typeVersion]*registeredVersion{}, streams: map[string]event.Version{}}
}

// apply adds a change; document is that of the version which it registers, amends or proposes.
func (s *registryState) apply(c eventtype.Change, document []byte) {
	of := typeVersion{c.Type, c.SchemaVersion}
	v := s.versions[of]
	if v == nil {
		v = &registeredVersion{first: c, digest: c.Digest, document: document}
		s.versions[of] = v
	}
	switch c.Action {
	case eventtype.ActionRegistered:
		v.since = c
	case eventtype.ActionAmendmentProposed:
		v.proposed = document
	case eventtype.ActionAmended:
		v.former = append(slices.Clip(v.former), datedDocument{v.since, v.document})
		v.since, v.digest, v.document = c, c.Digest, document
	}
	v.state.Apply(c)
	s.generation = c.Number
}

// versionsOf lists the versions of a type.
func (s *registryState) versionsOf(name string) (out []eventtype.VersionState) {
	for of, v := range s.versions {
		if of.name == name {
			out = append(out, *v.of(of.number))
		}
	}
	slices.SortFunc(out, func(a, b eventtype.VersionState) int { return cmp.Compare(a.SchemaVersion, b.SchemaVersion) })
	return out
}

// current is the registry of a tenant after all events that were committed when it was asked for.
func (t *EventTypes) current(ctx context.Context, tenantID string) (*registryState, error) {
	f, err := t.fold(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	former := newRegistryState()
	if f.sealed != nil {
		if former, err = t.former(ctx, tenantID, f.sealed); err != nil {
			return nil, err
		}
	}
	s := newRegistryState()
	s.generation = former.generation
	for of, v := range former.versions {
		known := *v
		s.versions[of] = &known
	}
	for i := range f.changes {
		c := &f.changes[i]
		s.apply(c.Change, c.document)
		s.streams[c.Type] = c.version
	}
	return s, nil
}

// former is the registry that an earlier release left. Its chain must end as the log recorded,
// and its documents must be those that the chain registered.
func (t *EventTypes) former(ctx context.Context, tenantID string, sealed *sealedData) (*registryState, error) {
	known, err := t.withLock(ctx, func() *registryState { return t.formers[tenantID] })
	if err != nil || known != nil {
		return known, err
	}
	record, err := t.shared.RegistryRecord(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	documents := map[typeVersion]*ports.StoredVersion{}
	for i := range record.Versions {
		v := &record.Versions[i]
		documents[typeVersion{v.Type, v.SchemaVersion}] = v
	}
	s := newRegistryState()
	link := eventtype.ChainStart(tenantID)
	for _, c := range record.Changes {
		link = c.ChainChecksum(link)
		stored := documents[typeVersion{c.Type, c.SchemaVersion}]
		if stored == nil || stored.Digest != c.Digest {
			return nil, recordBroken(tenantID)
		}
		s.apply(c, stored.Document)
	}
	if s.generation != sealed.LastChange || hex.EncodeToString(link[:]) != sealed.Checksum {
		return nil, recordBroken(tenantID)
	}
	_, err = t.withLock(ctx, func() *registryState { t.formers[tenantID] = s; return s })
	return s, err
}

func recordBroken(tenantID string) error {
	return fault.New(fault.Unavailable, "event_type.record_broken",
		"the event types of tenant %s from before its administrative log are not as the log recorded them; run `backbone verify --tenant %s` and restore them", tenantID, tenantID)
}

func (t *EventTypes) withLock(ctx context.Context, run func() *registryState) (*registryState, error) {
	if err := t.reading.Acquire(ctx); err != nil {
		return nil, err
	}
	defer t.reading.Release()
	return run(), nil
}

// fold reads what is new and returns what the log of a tenant says.
func (t *EventTypes) fold(ctx context.Context, tenantID string) (out typeFold, err error) {
	if t.log == nil {
		return out, nil
	}
	err = t.read(ctx, tenantID, func() {
		for _, f := range t.folds {
			if f.log.TenantID == tenantID {
				out = *f
				out.listed = maps.Clone(f.listed) // later reads add to it
			}
		}
	})
	if err == nil {
		err = out.broken
	}
	return out, err
}

// read folds the events that are new in the log of a tenant, or in all logs without one, and runs
// then with the lock.
func (t *EventTypes) read(ctx context.Context, tenantID string, then func()) error {
	if err := t.reading.Acquire(ctx); err != nil {
		return err
	}
	defer t.reading.Release()
	logs, heads, err := readHeads(ctx, t.log.entities, t.heads, tenantID)
	if err != nil {
		return err
	}
	for _, log := range logs {
		if err := t.follow(ctx, log, heads[log.Partition]); err != nil {
			return err
		}
	}
	then()
	return nil
}

// follow folds the events of a log up to its head; from its beginning if the log ends before
// the events that were read, or in another one. What is wrong with a log is kept in its fold; an
// error is that of the context, or of a query that took too long. See brokenPause.
func (t *EventTypes) follow(ctx context.Context, log ports.LegalEntity, head ports.Head) error {
	f := t.folds[log.Partition]
	if f != nil && f.isUpTo(head, t.log.clock.Now()) {
		return nil
	}
	if f == nil || IsBroken(f.broken) || head.Sequence <= f.at {
		f = &typeFold{log: log, checksum: event.GenesisChecksum(t.log.logName, log.Partition), listed: map[versionData]bool{}}
	}
	t.folds[log.Partition] = f
	f.broken = nil
	for f.broken == nil && f.at < head.Sequence {
		page, err := readPage(ctx, t.chains, log.Partition, f.at)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			f.broken = err
		case len(page) == 0:
			f.broken = brokenAfter(log, f.at, "it ends before its head")
		}
		for i := range page {
			f.add(&page[i])
		}
	}
	f.brokenAt, f.lookAgain = head, t.log.clock.Now().Add(pauseAfter(f.broken))
	return tooSlow(f.broken)
}

// typeFold is what the events of a log say about event types.
type typeFold struct {
	log         ports.LegalEntity
	at          event.Sequence // of the last event
	checksum    event.Hash     // of the last event
	broken      error          // administration.log_broken, or why it could not be read
	brokenAt    ports.Head     // the head of the log when it was found broken
	lookAgain   time.Time      // when it is read again though it has that head
	buffer      []byte
	sealed      *sealedData // nil: not recorded yet
	changes     []typeChange
	listed      map[versionData]bool // built-in types
	listVersion event.Version        // of the stream that lists them
}

// typeChange is a change that an event of a log made.
type typeChange struct {
	eventtype.Change
	document []byte
	version  event.Version // of the type's stream
}

// lists reports whether the log lists a version, whatever its document.
func (f *typeFold) lists(v versionData) bool {
	for listed := range f.listed {
		if listed.Type == v.Type && listed.SchemaVersion == v.SchemaVersion {
			return true
		}
	}
	return false
}

// isUpTo reports whether reading on to a head would change nothing.
func (f *typeFold) isUpTo(head ports.Head, now time.Time) bool {
	if f.broken != nil {
		return head.Sequence == f.brokenAt.Sequence && head.Checksum == f.brokenAt.Checksum && now.Before(f.lookAgain)
	}
	return head.Sequence == f.at && head.Checksum == f.checksum
}

func (f *typeFold) generation() int64 {
	n := int64(len(f.changes))
	if f.sealed != nil {
		n += f.sealed.LastChange
	}
	return n
}

// add checks the next event against the chain and folds it.
func (f *typeFold) add(e *event.Recorded) {
	if f.broken != nil {
		return
	}
	var reason string
	if reason, f.buffer = checkNext(e, f.at, f.checksum, f.buffer); reason == "" && f.apply(e) != nil {
		reason = "the next event cannot be read"
	}
	if reason != "" {
		f.broken = brokenAfter(f.log, f.at, reason)
		return
	}
	f.at, f.checksum = e.Sequence, e.Checksum
}

func (f *typeFold) apply(e *event.Recorded) error {
	action, isChange := actionOf(e.Type)
	if !isChange && e.Type != EventTypeHistorySealed && e.Type != EventTypesBuiltIn {
		return nil
	}
	data, err := e.Data()
	if err != nil {
		return err
	}
	switch e.Type {
	case EventTypeHistorySealed:
		f.sealed = &sealedData{}
		return json.Unmarshal(data, f.sealed)
	case EventTypesBuiltIn:
		var list builtInData
		if err := json.Unmarshal(data, &list); err != nil {
			return err
		}
		for _, v := range list.Versions {
			f.listed[v] = true
		}
		f.listVersion = e.StreamVersion
		return nil
	}
	c, document, err := readChange(data)
	if err != nil {
		return err
	}
	if e.Stream != typeStreamOf(c.Type) {
		return errors.New("the stream is not that of the type")
	}
	if document == nil && (action == eventtype.ActionAmended || action == eventtype.ActionAmendmentProposed) {
		return errors.New("an amendment has no document")
	}
	c.TenantID, c.Number, c.Action, c.Actor, c.At, c.Checksum = f.log.TenantID, f.generation()+1, action, e.ActorID, e.RecordedAt.UTC(), e.Checksum
	f.changes = append(f.changes, typeChange{c, document, e.StreamVersion})
	return nil
}
