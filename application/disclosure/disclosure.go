// Package disclosure records the reads that matter: personal data in clear, exports,
// verifications. An access is stored before its answer leaves; what cannot be recorded is not
// answered.
//
// Service is asked for the reader of a request, and records what that reader is given.
// Recorder runs in the background: it binds the accesses of every hour to the chain, and
// deletes those that are older than the retention.
package disclosure

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Rights tells which classes of personal data a principal reads: tenancy.Service.
type Rights interface {
	// Rights adds the classes that the principal was granted for a time.
	Rights(ctx context.Context, p ports.Principal, granted []shredding.Class) (module.Rights, error)
}

// Logs finds the administrative log of a tenant: administration.Log.
type Logs interface {
	Of(ctx context.Context, tenantID string) (ports.LegalEntity, error)
}

// Cursors signs the cursors of lists: query.CursorSealer.
type Cursors interface {
	SealText(tenantID string, digest []byte, text string) string
	OpenText(cursor, tenantID string, digest []byte) (string, error)
}

// Config is what a Service needs.
type Config struct {
	Accesses       ports.AccessLog
	Rights         Rights
	Logs           Logs
	Principals     Grants
	Administration Administration
	Entities       ports.LegalEntities
	Cursors        Cursors
	Clock          ports.Clock
	IDs            ports.IDSource
	Limits         Limits
}

// Limits bound what a Service does; all are required.
type Limits struct {
	LongestGrant time.Duration // from its beginning to its end
}

// Service records accesses and answers from their record.
type Service struct {
	Config

	lock  ports.Lock
	codes map[event.PartitionID]string // of legal entities, which never change
}

// New makes a Service.
func New(c Config) (*Service, error) {
	return &Service{Config: c, lock: ports.NewLock(), codes: map[event.PartitionID]string{}}, fault.RequirePositive("disclosure.Limits", c.Limits)
}

// Purpose says for what something is read.
type Purpose = disclosure.Purpose

// CheckReason refuses a reason that is too long or looks like personal data. Faults:
// access.reason_invalid, pii.in_text.
func CheckReason(field, reason string) error {
	if len(reason) > disclosure.MaxReason || strings.ContainsFunc(reason, func(r rune) bool { return r < ' ' }) {
		return fault.New(fault.Invalid, "access.reason_invalid", "a reason is one line of at most %d bytes; shorten it", disclosure.MaxReason).WithField(field)
	}
	return shredding.CheckText(field, reason)
}

// Reader returns the principal as a reader whose accesses are recorded. An auditor who gives a
// reason reads what was granted. The report of a person opens all classes; its caller masks the
// values of others before (MaskOthers). Faults: those of
// Rights and of the store.
func (s *Service) Reader(ctx context.Context, p ports.Principal, why Purpose) (module.Reader, error) {
	if why.Subject != "" {
		return reader{module.Planning{}, s, p, why, nil}, nil
	}
	granted, err := s.granted(ctx, p, why.Reason)
	if err != nil {
		return nil, err
	}
	rights, err := s.Rights.Rights(ctx, p, slices.Sorted(maps.Keys(granted)))
	if err != nil {
		return nil, err
	}
	return reader{rights, s, p, why, granted}, nil
}

// reader records what it is given.
type reader struct {
	module.Rights
	service   *Service
	principal ports.Principal
	purpose   Purpose
	granted   map[shredding.Class]disclosure.Grant // by class; an auditor reads by nothing else
}

// Disclose implements module.Reader.
func (r reader) Disclose(ctx context.Context, opened []module.Opened) error {
	kind := disclosure.PersonalData
	if r.purpose.Subject != "" {
		kind = disclosure.Report
	}
	accesses := make([]disclosure.Access, len(opened))
	for i, o := range opened {
		code, err := r.service.code(ctx, r.principal.TenantID, o.Partition)
		if err != nil {
			return err
		}
		accesses[i] = disclosure.Access{Kind: kind, LegalEntity: code, Subject: o.Subject, Class: o.Class, Values: o.Values, GrantID: r.granted[o.Class].ID}
	}
	return r.service.Record(ctx, r.principal, r.purpose, accesses...)
}

// Record stores accesses of a principal, all or none, in one statement. The caller sets what
// was read: Kind, LegalEntity, Subject, Class and Values. On an error it must not answer.
func (s *Service) Record(ctx context.Context, p ports.Principal, why Purpose, accesses ...disclosure.Access) error {
	log, err := s.Logs.Of(ctx, p.TenantID)
	if err != nil {
		return err
	}
	for i := range accesses {
		a := &accesses[i]
		a.ID, a.PersonID, a.PrincipalID = s.IDs.NewID(s.Clock.Now()), p.PersonID, p.PrincipalID
		a.Operation, a.Reason, a.RequestID = why.Operation, why.Reason, why.RequestID
	}
	return s.Accesses.AddAccesses(ctx, log.Partition, accesses)
}

// code finds the code of a legal entity, or of the administrative log.
func (s *Service) code(ctx context.Context, tenantID string, p event.PartitionID) (string, error) {
	if err := s.lock.Acquire(ctx); err != nil {
		return "", err
	}
	defer s.lock.Release()
	if code, known := s.codes[p]; known {
		return code, nil
	}
	entities, err := s.Entities.LegalEntities(ctx, tenantID)
	if err != nil {
		return "", err
	}
	for _, le := range entities {
		s.codes[le.Partition] = le.Code
	}
	if _, known := s.codes[p]; !known {
		s.codes[p] = ports.AdministrativeCode
	}
	return s.codes[p], nil
}

// Search lists the accesses of the principal's tenant, newest first. The cursor continues
// behind a page; "" begins. next is "" after the last page. Faults: cursor.malformed, cursor.foreign.
func (s *Service) Search(ctx context.Context, p ports.Principal, q ports.AccessQuery, cursor string) (page []disclosure.Access, next string, err error) {
	log, err := s.Logs.Of(ctx, p.TenantID)
	if err != nil {
		return nil, "", err
	}
	q.Log = log.Partition
	digest := queryDigest(q)
	if cursor != "" {
		text, err := s.Cursors.OpenText(cursor, p.TenantID, digest)
		if err != nil {
			return nil, "", err
		}
		if q.BeforeAt, q.BeforeID, err = parsePosition(text); err != nil {
			return nil, "", err
		}
	}
	limit := q.Limit
	q.Limit++
	if page, err = s.Accesses.SearchAccesses(ctx, q); err != nil || len(page) <= limit {
		return page, "", err
	}
	page = page[:limit]
	last := page[limit-1]
	return page, s.Cursors.SealText(p.TenantID, digest, strconv.FormatInt(last.At.UnixMicro(), 10)+" "+last.ID.String()), nil
}

// queryDigest binds a cursor to the filters of its query.
func queryDigest(q ports.AccessQuery) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "access-log\x00%s\x00%s\x00%s\x00%s\x00%d\x00%d", q.PersonID, q.Subject, q.Class, q.Kind, q.From.UnixMicro(), q.To.UnixMicro()))
	return sum[:]
}

func parsePosition(text string) (at time.Time, id event.ID, err error) {
	micros, rest, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(micros, 10, 64)
	if err == nil {
		id, err = event.ParseID(rest)
	}
	if err != nil { // only a signed cursor of another release
		return at, id, fault.New(fault.Invalid, "cursor.malformed", "this is not a cursor; use next_cursor of the page before, unchanged").WithField("cursor")
	}
	return time.UnixMicro(n).UTC(), id, nil
}
