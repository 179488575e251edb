package administration

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Heads reads the ends of logs.
type Heads interface {
	Heads(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]ports.Head, error)
}

// Principals is the directory of callers. Every answer follows from all events that were
// committed when it was asked for: it reads what is new in the administrative logs first, one
// read serving all who wait for it.
type Principals struct {
	log      *Log
	entities ports.LegalEntities
	chains   ports.ChainReader
	heads    Heads
	clock    ports.Clock

	reading ports.Lock
	reads   atomic.Uint64 // that are finished

	mu      sync.RWMutex
	folds   map[event.PartitionID]*fold
	byToken map[event.Hash]event.PartitionID
}

var _ ports.Principals = (*Principals)(nil)

// NewPrincipals makes the directory over the administrative logs.
func NewPrincipals(log *Log, chains ports.ChainReader, heads Heads) *Principals {
	return &Principals{
		log: log, entities: log.entities, chains: chains, heads: heads, clock: log.clock, reading: ports.NewLock(),
		folds: map[event.PartitionID]*fold{}, byToken: map[event.Hash]event.PartitionID{},
	}
}

// PrincipalByTokenHash implements ports.Principals. Fault administration.log_broken if the
// chain of the tenant's log does not hold.
func (p *Principals) PrincipalByTokenHash(ctx context.Context, hash event.Hash) (ports.Principal, error) {
	if err := p.read(ctx); err != nil {
		return ports.Principal{}, err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if f, ok := p.folds[p.byToken[hash]]; ok {
		if f.broken != nil {
			return ports.Principal{}, f.broken
		}
		return clone(f.principals[f.byToken[hash]].Principal), nil
	}
	for _, f := range p.folds {
		if fault.KindOf(f.broken) == fault.Unavailable && !IsBroken(f.broken) {
			return ports.Principal{}, f.broken // the token may be in what could not be read
		}
	}
	return ports.Principal{}, fault.New(fault.Unauthenticated, "auth.token_unknown", "the access token is not known; sign in again or ask the administrator for a new one")
}

// PrincipalByPerson implements ports.Principals.
func (p *Principals) PrincipalByPerson(ctx context.Context, tenantID, personID string) (ports.Principal, error) {
	if err := p.read(ctx); err != nil {
		return ports.Principal{}, err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	f := p.foldOf(tenantID)
	if f == nil {
		return ports.Principal{}, personNotFound()
	}
	logins, err := f.logins(personID, p.clock.Now())
	if err != nil {
		return ports.Principal{}, err
	}
	return clone(logins[0]), nil
}

// logins returns the logins of a person that give access: first those that have not expired,
// then the older ones. Fault principal.not_found if there is none.
func (f *fold) logins(personID string, now time.Time) ([]ports.Principal, error) {
	if f.broken != nil {
		return nil, f.broken
	}
	expired := map[bool]int{true: 1}
	var logins []ports.Principal
	for entry := range maps.Values(f.principals) {
		if entry.PersonID == personID && !entry.isRevoked() {
			logins = append(logins, entry.Principal)
		}
	}
	if len(logins) == 0 {
		return nil, personNotFound()
	}
	slices.SortFunc(logins, func(a, b ports.Principal) int {
		return cmp.Or(expired[a.Expired(now)]-expired[b.Expired(now)], a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.PrincipalID, b.PrincipalID))
	})
	return logins, nil
}

func personNotFound() error {
	return fault.New(fault.NotFound, "principal.not_found", "the tenant has no such person; check the id or create the principal")
}

// ListPrincipals implements ports.Principals.
func (p *Principals) ListPrincipals(ctx context.Context, tenantID string) ([]ports.PrincipalStatus, error) {
	if err := p.read(ctx); err != nil {
		return nil, err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	f := p.foldOf(tenantID)
	if f == nil {
		return []ports.PrincipalStatus{}, nil
	}
	if f.broken != nil {
		return nil, f.broken
	}
	list := make([]ports.PrincipalStatus, 0, len(f.principals))
	for _, id := range slices.Sorted(maps.Keys(f.principals)) {
		status := f.principals[id].PrincipalStatus
		status.Principal = clone(status.Principal)
		list = append(list, status)
	}
	return list, nil
}

// saveTries bounds how often a change is tried while others change the same person.
const saveTries = 5

// SavePrincipal implements ports.Principals: it records the principal's rights and its token.
// Fault principal.token_taken when another principal has the token.
func (p *Principals) SavePrincipal(ctx context.Context, principal ports.Principal, reason string, by event.Actor) error {
	log, err := p.log.Of(ctx, principal.TenantID)
	if err != nil {
		return err
	}
	if err := p.read(ctx); err != nil {
		return err
	}
	write, err := p.plan(log, principal, reason, by)
	if err != nil {
		return err
	}
	err = p.log.writer.Write(ctx, write)
	if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion {
		return principalChanged()
	}
	return err
}

func principalChanged() error {
	return fault.New(fault.Conflict, "principal.changed", "another administrator has changed this person or service; look at the rights as they are now and decide again")
}

// RecordExpiry implements ports.Principals.
func (p *Principals) RecordExpiry(ctx context.Context, principal ports.Principal) error {
	if err := p.read(ctx); err != nil {
		return err
	}
	p.mu.RLock()
	var now entry
	f := p.foldOf(principal.TenantID)
	if f != nil {
		now = f.principals[principal.PrincipalID]
	}
	p.mu.RUnlock()
	holds := f != nil && f.broken == nil // callers of a broken log are refused anyway
	if !holds || now.isRevoked() || now.ExpiryRecorded || now.TokenHash != principal.TokenHash || !now.Expired(p.clock.Now()) {
		return nil
	}
	w := writeBy(f.log, event.Actor{Type: event.System, ID: "backbone", Name: "expiry"})
	w.Drafts = []event.Draft{draft(TokenExpired, streamOf(now.PrincipalID), expiredData{
		PrincipalID: now.PrincipalID, SHA256: hex.EncodeToString(now.TokenHash[:]), ExpiredAt: event.Micros(now.ExpiresAt),
	})}
	w.Streams = []concurrency.StreamExpectation{{Stream: streamOf(now.PrincipalID), Expected: concurrency.Exactly(now.Version)}}
	if err := p.log.writer.Write(ctx, w); fault.CodeOf(err) != concurrency.CodeWrongExpectedVersion {
		return err
	}
	return nil // another node recorded it, or the login has changed
}

// RevokePerson implements ports.Principals. It ends the logins that there are.
func (p *Principals) RevokePerson(ctx context.Context, tenantID, personID, reason string, by event.Actor) error {
	return p.changeLogins(ctx, tenantID, personID, 0, by, func(login ports.Principal) event.Draft {
		return draft(PrincipalRevoked, streamOf(login.PrincipalID), revokedData{PrincipalID: login.PrincipalID, Reason: reason})
	})
}

// ReviewPerson implements ports.Principals. It reviews the logins that there are.
func (p *Principals) ReviewPerson(ctx context.Context, tenantID, personID string, version event.Version, reason string, by event.Actor) error {
	return p.changeLogins(ctx, tenantID, personID, version, by, func(login ports.Principal) event.Draft {
		return draft(PrincipalReviewed, streamOf(login.PrincipalID), reviewedData{PrincipalID: login.PrincipalID, Version: login.Version, Reason: reason})
	})
}

// changeLogins appends an event for each login of a person that gives access. If version is not
// 0, the first login must be at it.
func (p *Principals) changeLogins(ctx context.Context, tenantID, personID string, version event.Version, by event.Actor, change func(login ports.Principal) event.Draft) error {
	log, err := p.log.Of(ctx, tenantID)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		if err := p.read(ctx); err != nil {
			return err
		}
		logins, err := p.logins(log, personID)
		if err != nil {
			return err
		}
		if version != 0 && logins[0].Version != version {
			return principalChanged()
		}
		w := writeBy(log, by)
		for _, login := range logins {
			w.Drafts = append(w.Drafts, change(login))
			w.Streams = append(w.Streams, concurrency.StreamExpectation{Stream: streamOf(login.PrincipalID), Expected: concurrency.Exactly(login.Version)})
		}
		err = p.log.writer.Write(ctx, w)
		if fault.CodeOf(err) != concurrency.CodeWrongExpectedVersion || try == saveTries {
			return err
		}
	}
}

// logins returns the logins of a person that give access; see fold.logins.
func (p *Principals) logins(log ports.LegalEntity, personID string) ([]ports.Principal, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	f := p.folds[log.Partition]
	if f == nil {
		return nil, personNotFound()
	}
	return f.logins(personID, p.clock.Now())
}

// plan plans the events that give a principal its rights and its token.
func (p *Principals) plan(log ports.LegalEntity, principal ports.Principal, reason string, by event.Actor) (Write, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	w := writeBy(log, by)
	f := p.folds[log.Partition]
	if f != nil && f.broken != nil {
		return Write{}, f.broken
	}
	if holder, taken := p.byToken[principal.TokenHash]; taken && (holder != log.Partition || f.byToken[principal.TokenHash] != principal.PrincipalID) {
		return Write{}, fault.New(fault.Conflict, "principal.token_taken", "another principal has this token; make a new token")
	}
	var known bool
	var before entry
	if f != nil {
		before, known = f.principals[principal.PrincipalID]
	}
	expect := concurrency.StreamExpectation{Stream: streamOf(principal.PrincipalID), Expected: concurrency.NoStream()}
	if known {
		expect.Expected = concurrency.Exactly(before.Version)
	}
	switch isLive := known && !before.isRevoked(); {
	case isLive != (principal.Version != 0), isLive && principal.Version != before.Version:
		return Write{}, principalChanged()
	case isLive:
		w.Drafts = renewalDrafts(before.Principal, principal, reason)
	default:
		w.Drafts = enrolmentDrafts(principal, reason)
	}
	w.Streams = []concurrency.StreamExpectation{expect}
	return w, nil
}

// read folds what is new. A caller that waited while another read began and ended need not
// read again. What is wrong with one log is kept in its fold; an error is that of all.
func (p *Principals) read(ctx context.Context) error {
	asked := p.reads.Load()
	if err := p.reading.Acquire(ctx); err != nil {
		return err
	}
	defer p.reading.Release()
	if p.reads.Load() > asked+1 {
		return nil
	}
	logs, heads, err := readHeads(ctx, p.entities, p.heads, "")
	if err != nil {
		return err
	}
	for _, log := range logs {
		if err := p.follow(ctx, log, heads[log.Partition]); err != nil {
			return err
		}
	}
	p.reads.Add(1)
	return nil
}

// follow folds the events of a log up to its head. A log that ends before the events that
// were read, or in another one, is read again from its beginning: the database was restored,
// or failed over to a standby that lacked them. What is wrong with a log is kept in its fold; an
// error is that of the context, or of a query that took too long. See brokenPause.
func (p *Principals) follow(ctx context.Context, log ports.LegalEntity, head ports.Head) error {
	p.mu.RLock()
	before := p.folds[log.Partition]
	p.mu.RUnlock()
	if before != nil && before.isUpTo(head, p.clock.Now()) {
		return nil
	}
	f := newFold(log, event.GenesisChecksum(p.log.logName, log.Partition))
	if before != nil && !IsBroken(before.broken) && head.Sequence > before.at {
		f = before.copy()
		f.broken = nil
	}
	for f.broken == nil && f.at < head.Sequence {
		page, err := readPage(ctx, p.chains, log.Partition, f.at)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			f.broken = err
		case len(page) == 0:
			f.fail("it ends before its head")
		}
		for i := range page {
			f.add(&page[i])
		}
	}
	if f.broken != nil && (before == nil || fault.CodeOf(before.broken) != fault.CodeOf(f.broken)) {
		p.log.logger.ErrorContext(ctx, "the administrative log of a tenant cannot be followed; its callers are refused", "tenant", log.TenantID, "after", f.at, "code", fault.CodeOf(f.broken))
	}
	f.brokenAt, f.lookAgain = head, p.clock.Now().Add(pauseAfter(f.broken))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.folds[log.Partition] = f
	maps.DeleteFunc(p.byToken, func(_ event.Hash, holder event.PartitionID) bool { return holder == log.Partition })
	for hash := range f.byToken {
		p.byToken[hash] = log.Partition
	}
	return tooSlow(f.broken)
}

func (p *Principals) foldOf(tenantID string) *fold {
	for _, f := range p.folds {
		if f.log.TenantID == tenantID {
			return f
		}
	}
	return nil
}

func clone(p ports.Principal) ports.Principal {
	p.Roles, p.LegalEntities = slices.Clone(p.Roles), slices.Clone(p.LegalEntities)
	b := &p.Binding
	b.Modules, b.ContractedTypes, b.PIIClasses = slices.Clone(b.Modules), slices.Clone(b.ContractedTypes), slices.Clone(b.PIIClasses)
	return p
}

// fold is the state that the events of a log lead to.
type fold struct {
	log        ports.LegalEntity
	at         event.Sequence // of the last event
	checksum   event.Hash     // of the last event
	principals map[string]entry
	byToken    map[event.Hash]string
	names      map[string]module.SealedDocument // by person id
	grants     map[event.ID]disclosure.Grant
	broken     error      // administration.log_broken, or why it could not be read
	brokenAt   ports.Head // the head of the log when it was found broken
	lookAgain  time.Time  // when it is read again though it has that head
	buffer     []byte
}

type entry struct{ ports.PrincipalStatus }

func (e *entry) isRevoked() bool { return !e.RevokedAt.IsZero() }

func newFold(log ports.LegalEntity, genesis event.Hash) *fold {
	return &fold{log: log, checksum: genesis, principals: map[string]entry{}, byToken: map[event.Hash]string{}, names: map[string]module.SealedDocument{}, grants: map[event.ID]disclosure.Grant{}}
}

// copy lets readers keep the fold while it is continued.
func (f *fold) copy() *fold {
	c := *f
	c.principals, c.byToken, c.names, c.grants, c.buffer = maps.Clone(f.principals), maps.Clone(f.byToken), maps.Clone(f.names), maps.Clone(f.grants), nil
	return &c
}

// isUpTo reports whether reading on to a head would change nothing.
func (f *fold) isUpTo(head ports.Head, now time.Time) bool {
	if f.broken != nil {
		return head.Sequence == f.brokenAt.Sequence && head.Checksum == f.brokenAt.Checksum && now.Before(f.lookAgain)
	}
	return head.Sequence == f.at && head.Checksum == f.checksum
}

func (f *fold) fail(reason string) { f.broken = brokenAfter(f.log, f.at, reason) }

// checkNext checks the next event against the chain, and its payload against its hash. The
// reason is empty if they hold.
func checkNext(e *event.Recorded, at event.Sequence, checksum event.Hash, buffer []byte) (reason string, _ []byte) {
	sum, buffer := e.ChainChecksum(checksum, buffer)
	switch {
	case e.Sequence != at+1:
		reason = "an event is missing"
	case sum != e.Checksum:
		reason = "the checksum of the next event is not that of its content"
	case e.Payload == nil || event.HashPayload(e.Salt, e.Payload) != e.PayloadHash:
		reason = "the payload of the next event is not the one that was recorded"
	}
	return reason, buffer
}

// add checks the next event against the chain and folds it.
func (f *fold) add(e *event.Recorded) {
	if f.broken != nil {
		return
	}
	var reason string
	if reason, f.buffer = checkNext(e, f.at, f.checksum, f.buffer); reason != "" {
		f.fail(reason)
		return
	}
	if err := f.apply(e); err != nil {
		f.fail("the next event cannot be read")
		return
	}
	f.at, f.checksum = e.Sequence, e.Checksum
}

func (f *fold) apply(e *event.Recorded) error {
	if e.Stream.Type != principalStream && e.Stream.Type != disclosure.GrantStream {
		return nil
	}
	data, err := e.Data()
	if err != nil {
		return err
	}
	if e.Stream.Type == disclosure.GrantStream {
		return f.applyGrant(e, data)
	}
	id := e.Stream.ID
	now := f.principals[id]
	delete(f.byToken, now.TokenHash)
	switch e.Type {
	case PrincipalEnrolled, PrincipalGranted:
		var rights rightsData
		if err := json.Unmarshal(data, &rights); err != nil {
			return err
		}
		rights.apply(&now.Principal)
		now.TenantID, now.RevokedAt, now.ReviewedAt, now.ReviewedBy = f.log.TenantID, time.Time{}, time.Time{}, ""
		if e.Type == PrincipalEnrolled {
			now.CreatedAt = e.RecordedAt
		}
	case TokenIssued, TokenRotated:
		var token tokenData
		if err := json.Unmarshal(data, &token); err != nil {
			return err
		}
		if err := token.apply(&now.Principal); err != nil {
			return err
		}
	case PrincipalNamed:
		if f.names[now.PersonID], err = sealedName(e, data); err != nil {
			return err
		}
	case TokenExpired:
		now.ExpiryRecorded = true
	case PrincipalReviewed:
		now.ReviewedAt, now.ReviewedBy = e.RecordedAt, e.ActorID
	case PrincipalRevoked:
		now.TokenHash, now.RevokedAt = event.Hash{}, e.RecordedAt
	}
	if now.PrincipalID != id {
		return fmt.Errorf("the stream %s is not that of principal %s", id, now.PrincipalID)
	}
	now.Version = e.StreamVersion
	f.principals[id] = now
	if !now.isRevoked() && now.TokenHash != (event.Hash{}) {
		f.byToken[now.TokenHash] = id
	}
	return nil
}
