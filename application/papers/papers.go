// Package papers keeps files as they were received, such as invoices, sealed beside the log.
//
// Keep seals the bytes of a paper under a key of their own, stores them, and appends the event that names
// them by their digest. The key is derived from a secret in the event, which the append seals as a personal value of
// the paper's subject. So the erasure of the subject reaches the paper, by the means of personal
// values alone: nothing else in this package knows of erasures. Open shows a paper to a reader who may read
// the value. Run sweeps bytes whose event a crash prevented. ADR 69 has the reasons.
package papers

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/paper"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Appender appends the event of a paper.
type Appender interface {
	// AppendPaper appends an event under the expectation. Faults: those of append.Service.
	AppendPaper(ctx context.Context, le ports.LegalEntity, actor event.Actor, d event.Draft, expected concurrency.StreamExpectation) error
}

// Events reads the streams of papers: ports.EventReader.
type Events interface {
	EventsOfStream(ctx context.Context, p event.PartitionID, s event.StreamID, from event.Version, limit int) ([]event.Recorded, error)
}

// Secrets are those of tenants: vault.Vault.
type Secrets interface {
	Authenticate(ctx context.Context, tenantID, purpose string, text []byte) (event.Hash, error)
}

// Config is what a Service needs; all of it is required.
type Config struct {
	Store   ports.Papers
	Appends Appender
	Events  Events
	Opener  module.Opener
	Secrets Secrets
	Clock   ports.Clock
	Logger  *slog.Logger
}

// Service keeps and shows papers.
type Service struct{ config Config }

// New makes a Service.
func New(c Config) *Service { return &Service{c} }

// Keep asks to keep a paper.
type Keep struct {
	LegalEntity ports.LegalEntity
	Actor       event.Actor
	Subject     shredding.Subject // whose erasure reaches the paper
	Retained    bool              // for ten years, as the law asks for papers of the books
	MediaType   string
	Bytes       []byte // at most paper.MaxBytes
}

func (k *Keep) eventType() string {
	if k.Retained {
		return paper.Retained
	}
	return paper.Kept
}

func (k *Keep) check() error {
	if _, known := paper.MediaTypes[k.MediaType]; !known {
		return fault.New(fault.Invalid, "paper.media_type_unsupported",
			"papers are PDF, XML, CSV, JPEG, PNG, TIFF, XLSX, ODS, ZIP, or application/octet-stream for others; send their media type as Content-Type").WithField("Content-Type")
	}
	if len(k.Bytes) == 0 {
		return fault.New(fault.Invalid, "paper.empty", "there are no bytes; send the file as the body")
	}
	return nil
}

// Found is a paper that is kept.
type Found struct {
	ID string
	paper.Paper
	Event event.Recorded

	contentSHA256 event.Hash
}

// FileName is a neutral name: those of received files may name persons.
func (f *Found) FileName() string { return "paper-" + f.ID + "." + paper.MediaTypes[f.MediaType] }

// Keep keeps a paper. The same bytes of the same subject and retention in a legal entity are kept once:
// created is false if they were before. Faults: paper.media_type_unsupported, paper.empty,
// pii.subject_erased (Gone), pii.keys_missing, those of append.Service.
func (s *Service) Keep(ctx context.Context, k Keep) (found Found, created bool, err error) {
	if err := k.check(); err != nil {
		return found, false, err
	}
	digest := event.Hash(sha256.Sum256(k.Bytes))
	id, err := s.idOf(ctx, k, digest)
	if err != nil {
		return found, false, err
	}
	if found, err = s.findKept(ctx, k, id); fault.KindOf(err) != fault.NotFound {
		return found, false, err
	}
	data, err := s.store(ctx, k, id, digest)
	if err != nil {
		return found, false, err
	}
	err = s.config.Appends.AppendPaper(ctx, k.LegalEntity, k.Actor, event.Draft{
		Type: k.eventType(), SchemaVersion: 1, OccurredAt: event.Micros(s.config.Clock.Now()), Stream: paper.Stream(id), Data: data,
		Entities: []event.EntityRef{{Type: k.Subject.Type(), ID: k.Subject.ID(), Role: paper.RoleSubject}},
	}, concurrency.StreamExpectation{Stream: paper.Stream(id), Expected: concurrency.NoStream()})
	created = err == nil
	if err != nil && fault.CodeOf(err) != concurrency.CodeWrongExpectedVersion {
		return found, false, err
	}
	found, err = s.Find(ctx, k.LegalEntity, id) // if another request kept the same paper first, it is that one
	return found, created, err
}

// store seals and stores the bytes, and returns the data of the event that names them.
func (s *Service) store(ctx context.Context, k Keep, id string, digest event.Hash) (paper.Data, error) {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails: it ends the program instead
	defer clear(secret)
	sealed, err := seal(k.LegalEntity.Partition, id, secret, k.Bytes)
	if err != nil {
		return paper.Data{}, err
	}
	content := ports.PaperContent{PaperID: id, SHA256: sha256.Sum256(sealed), Sealed: sealed}
	if err := s.config.Store.AddPaper(ctx, k.LegalEntity.Partition, content); err != nil {
		return paper.Data{}, err
	}
	original, err := json.Marshal(paper.Original{SHA256: hex.EncodeToString(digest[:]), Secret: base64.RawURLEncoding.EncodeToString(secret)})
	return paper.Data{MediaType: k.MediaType, SizeBytes: int64(len(k.Bytes)), ContentSHA256: hex.EncodeToString(content.SHA256[:]), Original: original}, err
}

// findKept finds a paper that the caller sends again. One whose subject was erased since is
// pii.subject_erased, as a new one would be.
func (s *Service) findKept(ctx context.Context, k Keep, id string) (Found, error) {
	found, err := s.Find(ctx, k.LegalEntity, id)
	if err != nil {
		return found, err
	}
	if _, err := s.original(ctx, &found, module.Planning{}); err != nil {
		if fault.CodeOf(err) == codeErased {
			err = shredding.Erased("/data/original")
		}
		return found, err
	}
	return found, nil
}

// Find finds a paper of a legal entity by its id. Fault paper.not_found.
func (s *Service) Find(ctx context.Context, le ports.LegalEntity, id string) (Found, error) {
	events, err := s.config.Events.EventsOfStream(ctx, le.Partition, paper.Stream(id), 1, 1)
	if err != nil {
		return Found{}, err
	}
	if len(events) == 0 {
		return Found{}, paper.NotFound()
	}
	found := Found{ID: id, Event: events[0]}
	data, err := dataOf(found.Event.Payload)
	if err != nil {
		return found, err
	}
	digest, err := hex.DecodeString(data.ContentSHA256)
	if err != nil || len(digest) != len(found.contentSHA256) {
		return found, paper.ContentMissing()
	}
	found.contentSHA256 = event.Hash(digest)
	encoded, err := json.Marshal(data)
	if err != nil {
		return found, err
	}
	return found, found.Apply(found.Event, encoded)
}

func dataOf(payload []byte) (paper.Data, error) {
	var body struct {
		Data paper.Data `json:"data"`
	}
	if err := json.Unmarshal(payload, &body); err != nil {
		return paper.Data{}, fmt.Errorf("payload of a paper: %w", err)
	}
	return body.Data, nil
}

const codeErased = "paper.erased"

// original opens the sealed part of a paper's event for a reader.
func (s *Service) original(ctx context.Context, f *Found, r module.Reader) (o paper.Original, err error) {
	e := &f.Event
	documents := []module.SealedDocument{{
		At:       shredding.Location{Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion},
		Document: e.Payload,
	}}
	if err := s.config.Opener.Open(ctx, documents, r); err != nil {
		return o, err
	}
	data, err := dataOf(documents[0].Document)
	if err != nil {
		return o, err
	}
	switch text := string(data.Original); {
	case text == shredding.Redacted:
		return o, fault.New(fault.Gone, codeErased, "the subject of this paper was erased, so the paper cannot be read any more; its event stays")
	case strings.HasPrefix(text, `"`):
		return o, fault.New(fault.Forbidden, "paper.forbidden", "your roles do not read papers (class %s of personal data); an auditor needs a grant and gives a reason", shredding.FreeText)
	}
	return o, json.Unmarshal(data.Original, &o)
}

// Open returns the bytes of a paper. The reader has recorded the access before. Faults: paper.erased (Gone),
// paper.forbidden, paper.content_missing, those of module.Opener and the stores.
func (s *Service) Open(ctx context.Context, le ports.LegalEntity, f *Found, r module.Reader) ([]byte, error) {
	o, err := s.original(ctx, f, r)
	if err != nil {
		return nil, err
	}
	content, err := s.config.Store.PaperContent(ctx, le.Partition, f.contentSHA256)
	if err != nil {
		return nil, err
	}
	return open(le.Partition, f.ID, o, content.Sealed)
}

const (
	sweepInterval = 24 * time.Hour
	// sweepAge is how old bytes are that no event names; the store deletes no younger ones.
	sweepAge = 24 * time.Hour
)

// Run deletes bytes that no event names, at once and every day until ctx ends. Any number of nodes may.
func (s *Service) Run(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		n, err := s.config.Store.SweepPapers(ctx, s.config.Clock.Now().Add(-sweepAge))
		switch {
		case err != nil && ctx.Err() == nil:
			s.config.Logger.WarnContext(ctx, "papers could not be swept; it will be tried again", "code", fault.CodeOf(err))
		case n > 0:
			s.config.Logger.InfoContext(ctx, "deleted the bytes of papers that were not kept", "papers", n)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
