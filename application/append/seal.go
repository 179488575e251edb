package append

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// dataPointer is where the $ of a manifest stands in a payload.
const dataPointer = "/data"

// seal replaces the personal values of a payload by their sealed form and notes in
// the event what was sealed for whom. Every payload is looked at: sealed values are
// made here and nowhere else, so a caller's are refused.
func (p *Preparer) seal(ctx context.Context, out *event.Prepared, t *module.RegisteredType, d *event.Draft, b *module.Batch, payload []byte) ([]byte, error) {
	fields, err := t.Manifest.Resolve(payload, dataPointer, d.Entities)
	if err != nil || len(fields) == 0 {
		return payload, err
	}
	if p.sealer == nil {
		return nil, fault.New(fault.FailedPrecondition, "pii.keys_missing",
			"this installation has no key service, so personal data cannot be stored; leave the personal fields out or have one configured").WithField(fields[0].Pointer)
	}
	if err := checkTokens(t, d.Series, payload, fields); err != nil {
		return nil, err
	}
	sealed, used, err := p.sealer.Seal(ctx, module.SealRequest{
		TenantID: b.LegalEntity.TenantID,
		At:       shredding.Location{Partition: b.LegalEntity.Partition, Kind: shredding.KindEvent, Record: out.ID, Type: t.Type, SchemaVersion: t.SchemaVersion},
		Class:    t.KeyClass, Document: payload, Fields: fields,
	})
	if err != nil {
		return nil, err
	}
	if err := p.checkSize(sealed); err != nil {
		return nil, err
	}
	out.Sealed = used
	out.PII = make(map[string]string, len(fields))
	for _, f := range fields {
		out.PII[f.Pointer] = string(f.Class)
	}
	return sealed, nil
}

// checkTokens wants no series token where the number, known only under the append
// lock, could not be written any more: inside a sealed value, or in the id of a
// subject, which is authenticated. That is the planner's mistake.
func checkTokens(t *module.RegisteredType, series []event.SeriesNumber, payload []byte, fields []shredding.Field) error {
	for _, n := range series {
		for _, f := range fields {
			start, end, found, err := jsondoc.Locate(payload, f.Pointer)
			if err != nil {
				return err
			}
			if found && bytes.Contains(payload[start:end], []byte(n.Token)) {
				return fmt.Errorf("the token of series %s stands in the personal field %s of %s, where its number cannot be written; plan without it", n.Series, f.Pointer, t.Type)
			}
			if strings.Contains(string(f.Subject), n.Token) {
				return fmt.Errorf("the token of series %s stands in the subject of %s of %s; plan with an id that is known before", n.Series, f.Pointer, t.Type)
			}
		}
	}
	return nil
}

// forget makes the next Prepare ask for the keys of a batch again.
func (p *Preparer) forget(at event.PartitionID, events []event.Prepared) {
	for i := range events {
		if len(events[i].Sealed) > 0 && p.sealer != nil {
			p.sealer.Forget(at, events[i].Sealed)
		}
	}
}
