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

// dataPointer is the pointer that a manifest's $ has in a payload.
const dataPointer = "/data"

// seal replaces the personal values of a payload by their sealed form and lists in the
// event which pointers were sealed for which subject. It checks payloads without
// personal fields too: only this function makes sealed values, so sealed values that a
// caller sends are refused.
func (p *Preparer) seal(ctx context.Context, out *event.Prepared, t *module.RegisteredType, d *event.Draft, b *module.Batch, payload []byte) ([]byte, error) {
	fields, err := t.Manifest.Resolve(payload, dataPointer, d.Entities)
	if err != nil || len(fields) == 0 {
		return payload, err
	}
	if p.config.Sealer == nil {
		return nil, fault.New(fault.FailedPrecondition, "pii.keys_missing",
			"this installation has no key service, so personal data cannot be stored; leave the personal fields out or have one configured").WithField(fields[0].Pointer)
	}
	if err := checkSeriesTokens(t, d.Series, payload, fields); err != nil {
		return nil, err
	}
	sealed, used, err := p.config.Sealer.Seal(ctx, module.SealRequest{
		TenantID: b.LegalEntity.TenantID,
		At:       shredding.Location{Partition: b.LegalEntity.Partition, Kind: shredding.KindEvent, Record: out.ID, Type: t.Type, SchemaVersion: t.SchemaVersion},
		Class:    t.KeyClass, Document: payload, Fields: fields,
	})
	if err != nil {
		return nil, err
	}
	if err := p.config.Limits.CheckEvent(sealed); err != nil {
		return nil, err
	}
	out.Sealed = used
	out.PII = make(map[string]string, len(fields))
	for _, f := range fields {
		out.PII[f.Pointer] = string(f.Class)
	}
	return sealed, nil
}

// checkSeriesTokens refuses a series token inside a sealed value or in the id of a
// subject. The number that replaces the token is drawn under the append lock, after
// sealing, and both are authenticated by then. Such a draft is a planner's defect.
func checkSeriesTokens(t *module.RegisteredType, series []event.SeriesNumber, payload []byte, fields []shredding.Field) error {
	for _, n := range series {
		for _, f := range fields {
			start, end, found, err := jsondoc.Locate(payload, f.Pointer)
			if err != nil {
				return err
			}
			if found && bytes.Contains(payload[start:end], []byte(n.Token)) {
				return fmt.Errorf("the token of series %s is in the personal field %s of %s, which is sealed before the number is drawn; plan without it", n.Series, f.Pointer, t.Type)
			}
			if strings.Contains(string(f.Subject), n.Token) {
				return fmt.Errorf("the token of series %s is in the subject of %s of %s; use a subject id that the planner knows", n.Series, f.Pointer, t.Type)
			}
		}
	}
	return nil
}

// forgetSubjectKeys drops the cached subject keys of a batch, so that the next Prepare fetches
// them again.
func (p *Preparer) forgetSubjectKeys(at event.PartitionID, events []event.Prepared) {
	for i := range events {
		if len(events[i].Sealed) > 0 && p.config.Sealer != nil {
			p.config.Sealer.Forget(at, events[i].Sealed)
		}
	}
}
