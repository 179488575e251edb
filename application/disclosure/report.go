package disclosure

import (
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Types lists the registered event types of a tenant, "" those of the built-in modules:
// ports.EventTypes.
type Types interface {
	EventTypes(ctx context.Context, tenantID string) (types []eventtype.Registration, generation int64, err error)
}

// Copies counts the sealed copies of a person's values in read models: projections.Targets.
type Copies interface {
	HoldersOfCopies() []string
	CountCopies(ctx context.Context, projection string, p event.PartitionID, s shredding.Subject) (int64, error)
}

// Erasures lists the erasures and holds of a tenant: ports.ErasureRegister.
type Erasures interface {
	Erasures(ctx context.Context, tenantID string, states []shredding.ErasureState, limit int) ([]ports.ErasureRequest, error)
	Holds(ctx context.Context, tenantID string, subject shredding.Subject, on event.Date) ([]ports.LegalHold, error)
}

// ReportsConfig is what Reports need; all of it is required.
type ReportsConfig struct {
	Service  *Service
	Records  ports.PersonalRecords
	Types    Types
	Copies   Copies
	Erasures Erasures
}

// Reports finds everything that is stored about a person, for the person's own report.
type Reports struct{ ReportsConfig }

// NewReports makes Reports.
func NewReports(c ReportsConfig) *Reports { return &Reports{c} }

// Overview is what there is about a person, without values.
type Overview struct {
	Erasures []ErasureOfPerson
	Holds    []HoldOfPerson
	Records  []RecordsOfPerson
	Copies   []CopiesOfPerson
}

// ErasureOfPerson is a request to erase the person in at least one of the legal entities.
type ErasureOfPerson struct {
	ID          string    `json:"id"`
	Status      string    `json:"status"`
	RequestedAt time.Time `json:"requested_at"`
	DestroyedAt time.Time `json:"destroyed_at,omitzero"` // since then the values read "[REDACTED]"
}

// HoldOfPerson keeps the data of the person from being erased.
type HoldOfPerson struct {
	ID          string    `json:"id"`
	LegalEntity string    `json:"legal_entity,omitempty"` // absent: all
	PlacedAt    time.Time `json:"placed_at"`
	Until       string    `json:"until,omitempty"` // absent: until it is released
}

// RecordsOfPerson counts the records of one type in a legal entity.
type RecordsOfPerson struct {
	LegalEntity    string    `json:"legal_entity"`
	Record         string    `json:"record"` // "event" or "intent"
	Type           string    `json:"type"`
	Purpose        string    `json:"purpose,omitempty"` // as the type was registered
	RetentionClass string    `json:"retention_class"`
	RetentionYears int       `json:"minimum_retention_years"`
	Records        int64     `json:"records"`
	Values         int64     `json:"values"`
	NewestAt       time.Time `json:"newest_at"`
}

// CopiesOfPerson counts the rows of a read model that hold copies of the values in the records.
type CopiesOfPerson struct {
	LegalEntity string `json:"legal_entity"`
	ReadModel   string `json:"read_model"`
	Rows        int64  `json:"rows"`
}

// Overview records that a report about a person is made, and finds what there is in the legal
// entities. On an error there must be no report.
func (r *Reports) Overview(ctx context.Context, p ports.Principal, why Purpose, entities []ports.LegalEntity) (o Overview, err error) {
	a := disclosure.Access{Kind: disclosure.Report, Subject: why.Subject}
	if len(entities) == 1 {
		a.LegalEntity = entities[0].Code
	}
	if err := r.Service.Record(ctx, p, why, a); err != nil {
		return o, err
	}
	codes := map[event.PartitionID]string{}
	for _, le := range entities {
		codes[le.Partition] = le.Code
	}
	if err := r.findErasures(ctx, p.TenantID, why.Subject, codes, &o); err != nil {
		return o, err
	}
	types, err := r.types(ctx, p.TenantID)
	if err != nil {
		return o, err
	}
	for _, le := range entities {
		counts, err := r.Records.CountPersonalRecords(ctx, le.Partition, why.Subject)
		if err != nil {
			return o, err
		}
		for _, n := range counts {
			found := RecordsOfPerson{
				LegalEntity: le.Code, Record: "event", Type: n.Type, RetentionClass: n.Class.String(), Records: n.Records, Values: n.Fields, NewestAt: n.NewestAt,
			}
			if n.Intent {
				found.Record = "intent"
			} else if t, known := types[n.Type]; known {
				found.Purpose, found.RetentionYears = t.Description, t.MinRetentionYears
			}
			o.Records = append(o.Records, found)
		}
		for _, name := range r.Copies.HoldersOfCopies() {
			rows, err := r.Copies.CountCopies(ctx, name, le.Partition, why.Subject)
			if err != nil {
				return o, err
			}
			if rows > 0 {
				o.Copies = append(o.Copies, CopiesOfPerson{LegalEntity: le.Code, ReadModel: name, Rows: rows})
			}
		}
	}
	return o, nil
}

func (r *Reports) findErasures(ctx context.Context, tenantID string, subject shredding.Subject, codes map[event.PartitionID]string, o *Overview) error {
	all, err := r.Erasures.Erasures(ctx, tenantID, nil, 0)
	if err != nil {
		return err
	}
	isSelected := func(p event.PartitionID) bool { return codes[p] != "" }
	for _, e := range all {
		if e.Subject == subject && slices.ContainsFunc(e.Partitions, isSelected) {
			o.Erasures = append(o.Erasures, ErasureOfPerson{ID: e.ID.String(), Status: string(e.State), RequestedAt: e.RequestedAt, DestroyedAt: e.DestroyedAt})
		}
	}
	holds, err := r.Erasures.Holds(ctx, tenantID, subject, event.DateOf(r.Service.Clock.Now()))
	if err != nil {
		return err
	}
	for _, h := range holds {
		code, seen := codes[h.Partition]
		if h.Partition != 0 && !seen {
			continue
		}
		hold := HoldOfPerson{ID: h.ID.String(), LegalEntity: code, PlacedAt: h.PlacedAt}
		if h.Until != nil {
			hold.Until = h.Until.String()
		}
		o.Holds = append(o.Holds, hold)
	}
	return nil
}

// types returns the newest registration of each type.
func (r *Reports) types(ctx context.Context, tenantID string) (map[string]eventtype.Registration, error) {
	newest := map[string]eventtype.Registration{}
	for _, of := range []string{"", tenantID} {
		all, _, err := r.Types.EventTypes(ctx, of)
		if err != nil {
			return nil, err
		}
		for _, t := range all {
			if t.SchemaVersion > newest[t.Type].SchemaVersion {
				newest[t.Type] = t
			}
		}
	}
	return newest, nil
}

// reportPage is how many records of a person are read at once. An event may have 1 MiB.
const reportPage = 20

// Events reads a page of the events of a person in a legal entity, after a sequence; none is
// the end. Values of the person are sealed, those of others read "[MASKED]".
func (r *Reports) Events(ctx context.Context, le ports.LegalEntity, subject shredding.Subject, after event.Sequence) ([]event.Recorded, error) {
	page, err := r.Records.PersonalEvents(ctx, le.Partition, subject, after, reportPage)
	if err != nil {
		return nil, err
	}
	page = slices.Clone(page)
	for i := range page {
		if page[i].Payload, err = MaskOthers(page[i].Payload, subject); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// Intents lists a page of the ids of the intents of a person in a legal entity, after an id.
func (r *Reports) Intents(ctx context.Context, le ports.LegalEntity, subject shredding.Subject, after event.ID) ([]event.ID, error) {
	return r.Records.PersonalIntents(ctx, le.Partition, subject, after, reportPage)
}

// MaskOthers replaces the sealed values of all but one person by "[MASKED]": a report about a
// person tells nothing about others.
func MaskOthers(document []byte, subject shredding.Subject) ([]byte, error) {
	if !shredding.HasSealed(document) {
		return document, nil
	}
	return shredding.OpenDocument(nil, document, func(s shredding.Sealed) (shredding.Answer, error) {
		if s.Subject == subject {
			return shredding.Kept(s), nil
		}
		return shredding.Withheld(), nil
	})
}
