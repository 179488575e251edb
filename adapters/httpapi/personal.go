package httpapi

import (
	"context"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Personal opens sealed personal values: vault.Vault.
type Personal interface {
	// Open replaces the sealed values of all documents for the reader; on an error no
	// document is changed. See module.Opener.
	Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error
}

// maskAll implements Personal without keys: every personal value is masked.
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

// openSealed opens the documents of one answer for the caller together, so that each key
// is fetched once. Opened values are in the answer only and never cached.
func (s *Server) openSealed(ctx context.Context, documents []module.SealedDocument) error {
	if len(documents) == 0 {
		return nil
	}
	reader, err := s.config.Disclosures.Reader(ctx, callOf(ctx).principal, purposeOf(ctx))
	if err != nil {
		return err
	}
	return convertToUnavailable(s.config.Personal.Open(ctx, documents, reader))
}

// convertToUnavailable turns every failure of the key service and key store into Unavailable: the
// request is valid, so the caller may retry, and never gets a placeholder instead of a
// value.
func convertToUnavailable(err error) error {
	f, ok := fault.As(err)
	if !ok || f.Kind == fault.Unavailable || f.Kind == fault.Timeout {
		return err
	}
	if !strings.HasPrefix(f.Code, "kms.") && !strings.HasPrefix(f.Code, "keys.") {
		return err
	}
	unavailable := *f
	unavailable.Kind = fault.Unavailable
	return unavailable.WithCause(err)
}

// openEvents returns copies of the events with opened payloads.
func (s *Server) openEvents(ctx context.Context, recorded []event.Recorded) ([]event.Recorded, error) {
	var documents []module.SealedDocument
	var indexes []int
	for i := range recorded {
		e := &recorded[i]
		if !shredding.HasSealed(e.Payload) {
			continue
		}
		indexes = append(indexes, i)
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
	for i, index := range indexes {
		opened[index].Payload = documents[i].Document
	}
	return opened, nil
}

// openIntents gives the intents opened payloads.
func (s *Server) openIntents(ctx context.Context, intents []intent.Intent) error {
	var documents []module.SealedDocument
	var indexes []int
	for i := range intents {
		if shredding.HasSealed(intents[i].Payload) {
			indexes = append(indexes, i)
			documents = append(documents, module.SealedDocument{At: module.LocationOf(&intents[i]), Document: intents[i].Payload})
		}
	}
	if err := s.openSealed(ctx, documents); err != nil {
		return err
	}
	for i, index := range indexes {
		intents[index].Payload = documents[i].Document
	}
	return nil
}

// openSealedValues opens the sealed values that an encoded answer about a legal entity copies
// from records. Each names the record that it was sealed for, which must be in that legal
// entity's partition.
func (s *Server) openSealedValues(ctx context.Context, p event.PartitionID, body []byte) ([]byte, error) {
	if !shredding.HasSealed(body) {
		return body, nil
	}
	documents := []module.SealedDocument{{At: shredding.Location{Partition: p}, Document: body}}
	if err := s.openSealed(ctx, documents); err != nil {
		return nil, err
	}
	return documents[0].Document, nil
}
