package httpapi

import (
	"context"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// maskAll is Personal without keys: nobody reads anything.
type maskAll struct{}

// Open implements Personal.
func (maskAll) Open(_ context.Context, documents []module.SealedDocument, _ module.Reader) error {
	masked := make([][]byte, len(documents))
	for i, d := range documents {
		var err error
		if masked[i], err = shredding.OpenDocument(nil, d.Document, func(shredding.Sealed) (shredding.Answer, error) { return shredding.Withheld(), nil }); err != nil {
			return err
		}
	}
	for i := range documents {
		documents[i].Document = masked[i]
	}
	return nil
}

// openSealed opens the documents of one answer for the caller, all at once, so that each
// key is fetched once. Values live in the answer only.
func (s *Server) openSealed(ctx context.Context, documents []module.SealedDocument) error {
	if len(documents) == 0 {
		return nil
	}
	reader, err := s.config.Access.Reader(ctx, callOf(ctx).principal)
	if err != nil {
		return err
	}
	return asUnavailable(s.config.Personal.Open(ctx, documents, reader))
}

// asUnavailable answers whatever the key service and the key store complain about as a
// matter of time: the request is right and its values are there, so the caller may
// come again, and never gets a placeholder instead.
func asUnavailable(err error) error {
	f, ok := fault.As(err)
	if !ok || f.Kind == fault.Unavailable || f.Kind == fault.Timeout {
		return err
	}
	if !strings.HasPrefix(f.Code, "kms.") && !strings.HasPrefix(f.Code, "keys.") {
		return err
	}
	away := *f
	away.Kind = fault.Unavailable
	return away.WithCause(err)
}

// openEvents gives the events with opened payloads. What the store gave stays as it
// is.
func (s *Server) openEvents(ctx context.Context, recorded []event.Recorded) ([]event.Recorded, error) {
	var documents []module.SealedDocument
	var places []int
	for i := range recorded {
		e := &recorded[i]
		if !shredding.HasSealed(e.Payload) {
			continue
		}
		places = append(places, i)
		documents = append(documents, module.SealedDocument{
			At: shredding.Location{
				Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion,
			},
			Document: e.Payload,
		})
	}
	if len(documents) == 0 {
		return recorded, nil
	}
	if err := s.openSealed(ctx, documents); err != nil {
		return nil, err
	}
	opened := slices.Clone(recorded)
	for i, place := range places {
		opened[place].Payload = documents[i].Document
	}
	return opened, nil
}

// openIntent gives an intent's payload opened.
func (s *Server) openIntent(ctx context.Context, stored intent.Intent) ([]byte, error) {
	if !shredding.HasSealed(stored.Payload) {
		return stored.Payload, nil
	}
	documents := []module.SealedDocument{{At: pipeline.Location(stored), Document: stored.Payload}}
	if err := s.openSealed(ctx, documents); err != nil {
		return nil, err
	}
	return documents[0].Document, nil
}

// openCopies opens the copies in an encoded answer about a legal entity. Each says by
// itself where it was sealed, which must be in that legal entity's part of the log.
func (s *Server) openCopies(ctx context.Context, p event.PartitionID, body []byte) ([]byte, error) {
	if !shredding.HasSealed(body) {
		return body, nil
	}
	documents := []module.SealedDocument{{At: shredding.Location{Partition: p}, Document: body}}
	if err := s.openSealed(ctx, documents); err != nil {
		return nil, err
	}
	return documents[0].Document, nil
}
