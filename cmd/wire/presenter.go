package wire

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// presenter writes events as the API shows them, for a receiver that makes no request: the
// reader of a broker's stream or the owner of a webhook.
type presenter struct {
	opener   module.Opener
	upcaster module.Upcaster // events are shown in the newest version
	entities ports.LegalEntities
	// reader gives the receiver's view of a legal entity's personal data.
	reader func(ctx context.Context, scope event.Scope) (module.Reader, error)
	// visible reports whether the receiver may see a legal entity of the tenant; nil: all.
	visible func(code string) bool
}

// Encode opens and writes events of one legal entity.
func (p presenter) Encode(ctx context.Context, recorded []event.Recorded, reference bool) ([][]byte, error) {
	if len(recorded) == 0 {
		return nil, nil
	}
	codes, err := p.codes(ctx, recorded)
	if err != nil {
		return nil, err
	}
	if !reference {
		// An event that cannot be upcast is written as it is stored, with the reason: it must
		// not block the events after it until an administrator has repaired the upcaster.
		if recorded, err = p.upcaster.UpcastForDisplay(ctx, recorded); err != nil {
			return nil, err
		}
		if recorded, err = p.open(ctx, recorded); err != nil {
			return nil, err
		}
	}
	return httpapi.EncodeEvents(recorded, codes, reference)
}

// open returns the events with opened payloads. It copies: recorded stays unchanged.
func (p presenter) open(ctx context.Context, recorded []event.Recorded) ([]event.Recorded, error) {
	var documents []module.SealedDocument
	var indexes []int
	for i := range recorded {
		e := &recorded[i]
		if shredding.HasSealed(e.Payload) {
			indexes = append(indexes, i)
			documents = append(documents, module.SealedDocument{
				At:       shredding.Location{Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion},
				Document: e.Payload,
			})
		}
	}
	if len(documents) == 0 {
		return recorded, nil
	}
	reader, err := p.reader(ctx, recorded[0].Scope)
	if err != nil {
		return nil, err
	}
	if err := p.opener.Open(ctx, documents, reader); err != nil {
		return nil, err
	}
	opened := slices.Clone(recorded)
	for i, index := range indexes {
		opened[index].Payload = documents[i].Document
	}
	return opened, nil
}

// codes returns the codes of legal entities by partition, if an event was caused in another
// one; it leaves out those that the receiver may not see.
func (p presenter) codes(ctx context.Context, recorded []event.Recorded) (map[event.PartitionID]string, error) {
	if !slices.ContainsFunc(recorded, func(e event.Recorded) bool { return e.CausedByPartition != 0 }) {
		return nil, nil
	}
	entities, err := p.entities.LegalEntities(ctx, recorded[0].Scope.TenantID)
	if err != nil {
		return nil, err
	}
	out := make(map[event.PartitionID]string, len(entities))
	for _, le := range entities {
		if p.visible == nil || p.visible(le.Code) {
			out[le.Partition] = le.Code
		}
	}
	return out, nil
}

// readerOf returns the reader for a person's rights, for a purpose. It may see no personal data where person
// is empty, the tenant has no such principal, or the principal lacks the legal entity.
func (a *App) readerOf(person string, why disclosure.Purpose) func(context.Context, event.Scope) (module.Reader, error) {
	return func(ctx context.Context, scope event.Scope) (module.Reader, error) {
		if person == "" {
			return module.Masked{}, nil
		}
		p, err := a.Principals.PrincipalByPerson(ctx, scope.TenantID, person)
		if fault.KindOf(err) == fault.NotFound {
			return module.Masked{}, nil
		}
		if err != nil {
			return nil, err
		}
		if len(p.LegalEntities) > 0 && !slices.Contains(p.LegalEntities, scope.LegalEntity) {
			return module.Masked{}, nil
		}
		return a.disclosures.Reader(ctx, p, why)
	}
}
