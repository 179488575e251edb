package administration

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Writer appends to a log; append.Service does, through an adapter of the composition root.
type Writer interface {
	// Write appends all drafts or none. Faults: those of ports.EventAppender.
	Write(ctx context.Context, w Write) error
}

// Write is a batch of an administrative log.
type Write struct {
	Log     ports.LegalEntity
	Actor   event.Actor
	Drafts  []event.Draft
	Streams []concurrency.StreamExpectation
}

// Log appends to the administrative logs. Of the nodes that begin the log of a tenant at the
// same time, one begins it.
type Log struct {
	entities  ports.LegalEntities
	streams   Streams
	writer    Writer
	directory FormerDirectory
	logName   string
	clock     ports.Clock
	logger    *slog.Logger
	concerns  []func(context.Context, ports.LegalEntity) error // that record something when a process first uses a log
	policy    *Policy                                          // nil in tools

	beginning ports.Lock // held while a log begins

	mu      sync.Mutex
	logs    map[string]ports.LegalEntity // that have begun, by tenant
	adopted map[concern]event.Sequence   // where AdoptRevisions ended
}

var _ ports.AdministrativeLog = (*Log)(nil)

// Streams reads the streams of a log.
type Streams interface {
	ports.StreamReader
	Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error)
}

// Adoption takes over what an earlier release stored about a concern, see Log.adopt.
type Adoption struct {
	Concern string
	Drafts  func(ctx context.Context, tenantID string) ([]event.Draft, error)
	Renews  bool // what an event of an earlier schema version recorded incompletely, see Log.renew
}

// FormerDirectory lists principals from before there were administrative logs.
type FormerDirectory interface {
	// FormerPrincipals lists those of a tenant, by principal id; tenant "" lists all.
	FormerPrincipals(ctx context.Context, tenantID string) ([]ports.Principal, error)
}

// LogConfig is what a Log needs.
type LogConfig struct {
	Entities  ports.LegalEntities
	Streams   Streams
	Writer    Writer
	Directory FormerDirectory
	LogName   string // of the installation; part of every genesis checksum
	Clock     ports.Clock
	Logger    *slog.Logger // learns of a log that does not hold together
	Adoptions []Adoption   // run once for each tenant, also for those to come: later rows are forged
	Policy    *Policy      // that this node decides by, to be recorded; nil in tools
}

// NewLog makes a Log.
func NewLog(c LogConfig) *Log {
	l := &Log{beginning: ports.NewLock(), entities: c.Entities, streams: c.Streams, writer: c.Writer, directory: c.Directory, logName: c.LogName, clock: c.Clock, logger: c.Logger, policy: c.Policy, logs: map[string]ports.LegalEntity{}, adopted: map[concern]event.Sequence{}}
	for _, a := range c.Adoptions {
		l.concerns = append(l.concerns, func(ctx context.Context, log ports.LegalEntity) error {
			write := l.appendIfAbsent
			if a.Renews {
				write = l.renew
			}
			return l.adopt(ctx, log, a.Concern, func(ctx context.Context) ([]event.Draft, error) { return a.Drafts(ctx, log.TenantID) }, write)
		})
	}
	if c.Policy != nil {
		l.concerns = append(l.concerns, l.installPolicy)
	}
	return l
}

// Of returns the administrative log of a tenant, and begins it if there is none. What the
// directory of an earlier release knows enters the log before the event that it began;
// from that event on the log alone counts. The first time it records what concerns this node.
func (l *Log) Of(ctx context.Context, tenantID string) (ports.LegalEntity, error) {
	if known, ok := l.cachedLog(tenantID); ok {
		return known, nil
	}
	if err := l.beginning.Acquire(ctx); err != nil {
		return ports.LegalEntity{}, err
	}
	defer l.beginning.Release()
	if known, ok := l.cachedLog(tenantID); ok { // while this call waited
		return known, nil
	}
	le, err := l.partition(ctx, tenantID)
	if err != nil {
		return ports.LegalEntity{}, err
	}
	if err := l.begin(ctx, le); err != nil {
		return ports.LegalEntity{}, err
	}
	for _, record := range l.concerns {
		if err := record(ctx, le); err != nil {
			return ports.LegalEntity{}, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logs[tenantID] = le
	return le, nil
}

func (l *Log) cachedLog(tenantID string) (log ports.LegalEntity, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log, ok = l.logs[tenantID]
	return log, ok
}

// BeginAll begins the logs of all tenants that have legal entities or principals. A log that does
// not hold together is reported: the callers of its tenant are refused, not those of others.
func (l *Log) BeginAll(ctx context.Context) error {
	partitions, err := l.entities.Partitions(ctx, "")
	if err != nil {
		return err
	}
	principals, err := l.directory.FormerPrincipals(ctx, "")
	if err != nil {
		return err
	}
	tenants := map[string]bool{}
	for _, le := range partitions {
		tenants[le.TenantID] = true
	}
	for _, p := range principals {
		tenants[p.TenantID] = true
	}
	for _, tenantID := range slices.Sorted(maps.Keys(tenants)) {
		if _, err := l.Of(ctx, tenantID); IsBroken(err) {
			l.logger.ErrorContext(ctx, "the administrative log of a tenant does not hold together; its callers are refused", "tenant", tenantID, "code", fault.CodeOf(err))
		} else if err != nil {
			return err
		}
	}
	return nil
}

// IsBroken reports whether an error says that the log or the former registry of one tenant does not
// hold together, which is no reason to refuse other tenants.
func IsBroken(err error) bool {
	code := fault.CodeOf(err)
	return code == "administration.log_broken" || code == "event_type.record_broken"
}

// partition finds or creates the partition of a tenant's log.
func (l *Log) partition(ctx context.Context, tenantID string) (ports.LegalEntity, error) {
	for {
		logs, err := l.entities.AdministrativeLogs(ctx, tenantID)
		if err != nil {
			return ports.LegalEntity{}, err
		}
		if len(logs) > 0 {
			return logs[0], nil
		}
		_, err = l.entities.CreateLegalEntity(ctx, ports.LegalEntity{
			TenantID: tenantID, Code: ports.AdministrativeCode, Name: "Administration", TimeZone: "UTC", Status: "active", CreatedAt: event.Micros(l.clock.Now()),
		})
		if err != nil && fault.CodeOf(err) != "legal_entity.duplicate" {
			return ports.LegalEntity{}, err
		}
	}
}

var began = event.StreamID{Type: administrationStream, ID: "log"}

// begin appends what the directory knows and the event that the log began, unless it has. It
// also records a legal entity whose creation was cut off before that.
func (l *Log) begin(ctx context.Context, log ports.LegalEntity) error {
	entities, err := l.entities.LegalEntities(ctx, log.TenantID)
	if err != nil {
		return err
	}
	for _, le := range entities {
		if err := l.appendIfAbsent(ctx, log, l.legalEntityDraft(le)); err != nil {
			return err
		}
	}
	if exists, err := l.exists(ctx, log, began); err != nil || exists {
		return err
	}
	principals, err := l.directory.FormerPrincipals(ctx, log.TenantID)
	if err != nil {
		return err
	}
	for _, p := range principals {
		if err := l.appendIfAbsent(ctx, log, enrolmentDrafts(p, "")...); err != nil {
			return err
		}
	}
	return l.appendIfAbsent(ctx, log, draft(Began, began, beganData{AdoptedPrincipals: len(principals), AdoptedLegalEntities: len(entities)}))
}

type beganData struct {
	AdoptedPrincipals    int `json:"adopted_principals"`
	AdoptedLegalEntities int `json:"adopted_legal_entities"`
}

func (l *Log) exists(ctx context.Context, log ports.LegalEntity, stream event.StreamID) (bool, error) {
	status, err := l.streams.StreamStatus(ctx, log.Partition, stream)
	return err == nil && status.State != event.StreamAbsent, err
}

// appendIfAbsent appends the drafts, which are of one stream, unless the stream exists. The store
// settles the race of several nodes.
func (l *Log) appendIfAbsent(ctx context.Context, log ports.LegalEntity, drafts ...event.Draft) error {
	if exists, err := l.exists(ctx, log, drafts[0].Stream); err != nil || exists {
		return err
	}
	return l.write(ctx, log, operator, concurrency.NoStream(), drafts)
}

// renew appends a draft to its stream if the newest event there is one of its type in an earlier
// schema version. The store settles the race of several nodes.
func (l *Log) renew(ctx context.Context, log ports.LegalEntity, drafts ...event.Draft) error {
	d := drafts[0]
	newest, err := l.newest(ctx, log, d.Stream)
	if err != nil || newest.Type != d.Type || newest.SchemaVersion >= d.SchemaVersion {
		return err
	}
	return l.write(ctx, log, operator, concurrency.Exactly(newest.StreamVersion), drafts)
}

// write appends drafts of one stream unless another node was faster.
func (l *Log) write(ctx context.Context, log ports.LegalEntity, by event.Actor, expected concurrency.Expected, drafts []event.Draft) error {
	w := writeBy(log, by)
	w.Drafts, w.Streams = drafts, []concurrency.StreamExpectation{{Stream: drafts[0].Stream, Expected: expected}}
	err := l.writer.Write(ctx, w)
	if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion {
		return nil
	}
	return err
}

// expectVersion expects a stream as it was read; 0: there was none.
func expectVersion(v event.Version) concurrency.Expected {
	if v == 0 {
		return concurrency.NoStream()
	}
	return concurrency.Exactly(v)
}

// writeBy begins a batch; the zero actor is the operator.
func writeBy(log ports.LegalEntity, by event.Actor) Write {
	if by.ID == "" {
		by = operator
	}
	return Write{Log: log, Actor: by}
}

// operator is the actor of what is done with the database's credentials, not with a token.
var operator = event.Actor{Type: event.System, ID: "s-backbone-operator", Name: "operator"}

// LegalEntityCreated records once who created a legal entity. If it fails, the next use of the log
// records it.
func (l *Log) LegalEntityCreated(ctx context.Context, le ports.LegalEntity, by event.Actor) error {
	err := l.recordLegalEntity(ctx, le, by)
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.logs, le.TenantID)
	}
	return err
}

// recordLegalEntity appends before it begins the log, which would make the operator its creator.
func (l *Log) recordLegalEntity(ctx context.Context, le ports.LegalEntity, by event.Actor) error {
	log, err := l.partition(ctx, le.TenantID)
	if err != nil {
		return err
	}
	d := l.legalEntityDraft(le)
	exists, err := l.exists(ctx, log, d.Stream)
	if err == nil && !exists {
		err = l.write(ctx, log, by, concurrency.NoStream(), []event.Draft{d})
	}
	if err == nil {
		_, err = l.Of(ctx, le.TenantID)
	}
	return err
}

// Record appends events about one thing, which is one stream of the tenant's log. Without an
// actor it was the operator. Faults: those of ports.EventAppender; concurrency.CodeWrongExpectedVersion
// if the stream is not at the expected version.
func (l *Log) Record(ctx context.Context, tenantID string, actor event.Actor, expected concurrency.StreamExpectation, drafts ...event.Draft) error {
	log, err := l.Of(ctx, tenantID)
	if err != nil {
		return err
	}
	w := writeBy(log, actor)
	w.Drafts, w.Streams = drafts, []concurrency.StreamExpectation{expected}
	return l.writer.Write(ctx, w)
}

// Latest returns the newest event of a stream of a tenant's log; its version is 0 if there is
// none. Fault administration.log_broken if its payload is not the one that was recorded.
func (l *Log) Latest(ctx context.Context, tenantID string, stream event.StreamID) (latest event.Recorded, err error) {
	log, err := l.Of(ctx, tenantID)
	if err != nil {
		return latest, err
	}
	return l.newest(ctx, log, stream)
}

func (l *Log) newest(ctx context.Context, log ports.LegalEntity, stream event.StreamID) (newest event.Recorded, err error) {
	events, _, err := l.streams.ReadStream(ctx, ports.StreamQuery{Partition: log.Partition, Stream: stream, Direction: ports.Backward, Limit: 1})
	if err != nil || len(events) == 0 {
		return newest, err
	}
	return events[0], checkPayloads(log.TenantID, events)
}

// checkPayloads compares payloads with the hashes that the chain covers, so that nothing is
// decided by an edited one before a verification finds it.
func checkPayloads(tenantID string, events []event.Recorded) error {
	for i := range events {
		if e := &events[i]; e.Payload == nil || event.HashPayload(e.Salt, e.Payload) != e.PayloadHash {
			return brokenLog(tenantID, fmt.Sprintf("the payload of event %d of %s is not the one that was recorded", e.StreamVersion, e.Stream))
		}
	}
	return nil
}

// Each calls f with the events of the given types in the order of the log. Fault
// administration.log_broken as in Latest.
func (l *Log) Each(ctx context.Context, tenantID string, types []string, f func(e *event.Recorded) error) error {
	log, err := l.Of(ctx, tenantID)
	if err != nil {
		return err
	}
	for after := event.Sequence(0); ; {
		page, err := l.streams.Events(ctx, ports.EventQuery{Partition: log.Partition, Types: types, After: after, Limit: pageEvents})
		if err == nil {
			err = checkPayloads(tenantID, page)
		}
		if err != nil {
			return err
		}
		for i := range page {
			if err := f(&page[i]); err != nil {
				return err
			}
			after = page[i].Sequence
		}
		if len(page) < pageEvents {
			return nil
		}
	}
}

func brokenLog(tenantID, reason string) *fault.Error {
	return fault.New(fault.Unavailable, "administration.log_broken",
		"the administrative log of tenant %s does not hold together: %s. Run `backbone verify --tenant %s` and restore the log", tenantID, reason, tenantID)
}

func brokenAfter(log ports.LegalEntity, after event.Sequence, reason string) error {
	return brokenLog(log.TenantID, fmt.Sprintf("after event %d, %s; no caller of the tenant is let in until it does", after, reason))
}

// adopt records what an earlier release stored about a concern, such as "webhooks", once for
// each tenant: drafts returns one for each row, every one of its own stream, and write appends it
// (appendIfAbsent or renew). After it a row
// that no event supports is forged. It is the only way in which rows enter a log: an Adoption
// runs when a process first uses the log, AdoptRevisions when what keeps the rows is at hand.
func (l *Log) adopt(ctx context.Context, log ports.LegalEntity, concern string, drafts func(context.Context) ([]event.Draft, error), write func(context.Context, ports.LegalEntity, ...event.Draft) error) error {
	adopted := event.StreamID{Type: administrationStream, ID: concern}
	if exists, err := l.exists(ctx, log, adopted); err != nil || exists {
		return err
	}
	rows, err := drafts(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := write(ctx, log, row); err != nil {
			return err
		}
	}
	return l.appendIfAbsent(ctx, log, draft(Adopted, adopted, adoptedData{Concern: concern, Rows: len(rows)}))
}

type adoptedData struct {
	Concern string `json:"concern"`
	Rows    int    `json:"rows"`
}

type legalEntityData struct {
	Code      string `json:"code"`
	Name      string `json:"name"`
	TimeZone  string `json:"time_zone"`
	Partition uint32 `json:"partition_id"`
	Genesis   string `json:"genesis"`
}

func (l *Log) legalEntityDraft(le ports.LegalEntity) event.Draft {
	genesis := event.GenesisChecksum(l.logName, le.Partition)
	return draft(LegalEntityCreated, event.StreamID{Type: legalEntityStream, ID: le.Code}, legalEntityData{
		Code: le.Code, Name: le.Name, TimeZone: le.TimeZone, Partition: uint32(le.Partition), Genesis: hex.EncodeToString(genesis[:]),
	})
}

// draft is an event of the administrative log.
func draft(eventType string, stream event.StreamID, data any) event.Draft {
	return event.Draft{Type: eventType, SchemaVersion: 1, Stream: stream, Data: data, Source: event.Source{System: "backbone", Channel: "administration"}}
}
