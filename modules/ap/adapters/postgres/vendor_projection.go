package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/ports"
)

// vendorActive is the status of a registered vendor.
const vendorActive = "active"

// VendorProjection writes ap.vendors. It is stateless and idempotent.
type VendorProjection struct{ queries *apdb.Queries }

var (
	_ ports.ProjectionHandler  = (*VendorProjection)(nil)
	_ ports.ProjectionResetter = (*VendorProjection)(nil)
	_ ports.ProjectionTables   = (*VendorProjection)(nil)
	_ ports.ProjectionTargets  = (*VendorProjection)(nil)
)

// NewVendorProjection makes the handler of the projection ap.vendors.
func NewVendorProjection() *VendorProjection { return &VendorProjection{queries: apdb.New()} }

// Apply implements ports.ProjectionHandler; tx must be a pgx.Tx.
func (p *VendorProjection) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	db, err := plugin.Tx(tx)
	if err != nil {
		return err
	}
	for i := range b.Events {
		if err := p.apply(ctx, db, int32(b.Version), &b.Events[i]); err != nil {
			return fmt.Errorf("event %s: %w", b.Events[i].ID, err)
		}
	}
	return nil
}

// The tables of ap.vendors.
var (
	vendorsTable  = ports.ProjectionTable{Schema: "ap", Name: "vendors", Key: []string{"vendor_id", "sequence"}}
	contactsTable = ports.ProjectionTable{Schema: "ap", Name: "vendor_contacts", Key: []string{"vendor_id", "contact_id", "sequence"}}
)

// Tables implements ports.ProjectionTables.
func (p *VendorProjection) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{vendorsTable, contactsTable}
}

// Targets implements ports.ProjectionTargets. A target is a vendor with its contacts, which
// only events of its own stream write. The column subject names the person whose sealed
// values the row holds.
func (p *VendorProjection) Targets() []ports.ProjectionTarget {
	const vendor, subject = "vendor_id", "subject"
	return []ports.ProjectionTarget{{Streams: []string{contract.StreamVendor}, Tables: []ports.TargetTable{
		{ProjectionTable: vendorsTable, Entity: vendor, Subject: subject}, {ProjectionTable: contactsTable, Entity: vendor, Subject: subject},
	}}}
}

// Reset implements ports.ProjectionResetter.
func (p *VendorProjection) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return plugin.DeleteRows(ctx, tx, b, p.Tables())
}

func (p *VendorProjection) apply(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded) error {
	switch e.Type {
	case contract.EventVendorRegistered, contract.EventContactRecorded, contract.EventContactRemoved:
	default:
		return nil
	}
	data, err := e.Data()
	if err != nil {
		return err
	}
	if e.Type == contract.EventVendorRegistered {
		return p.addVendor(ctx, db, version, e, data)
	}
	return p.addContact(ctx, db, version, e, data)
}

func (p *VendorProjection) addVendor(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, data []byte) error {
	var v struct {
		VendorID      string          `json:"vendor_id"`
		Country       string          `json:"country"`
		NaturalPerson bool            `json:"natural_person"`
		Name          json.RawMessage `json:"name"`
		Person        json.RawMessage `json:"person"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	row := &apdb.VendorInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), EffectiveDate: date(e.EffectiveDate), NaturalPerson: v.NaturalPerson,
		EventID: pgtype.UUID{Bytes: e.ID, Valid: true}, VendorID: v.VendorID, Country: v.Country, Status: vendorActive, Name: string(v.Name),
	}
	if v.NaturalPerson {
		copies := copier{event: e}
		row.Name = copies.copyMember("person", v.Person)
		row.Subject = copies.subject
	}
	return p.queries.VendorInsert(ctx, db, row)
}

func (p *VendorProjection) addContact(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, data []byte) error {
	var c struct {
		VendorID  string          `json:"vendor_id"`
		ContactID string          `json:"contact_id"`
		Name      json.RawMessage `json:"name"`
		Email     json.RawMessage `json:"email"`
		Phone     json.RawMessage `json:"phone"`
		Function  json.RawMessage `json:"function"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	copies := copier{event: e}
	row := &apdb.VendorContactInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), EffectiveDate: date(e.EffectiveDate), Removed: e.Type == contract.EventContactRemoved,
		VendorID: c.VendorID, ContactID: c.ContactID,
		Name: copies.copyMember("name", c.Name), Email: copies.copyMember("email", c.Email), Phone: copies.copyMember("phone", c.Phone), JobFunction: copies.copyMember("function", c.Function),
	}
	row.Subject = copies.subject
	return p.queries.VendorContactInsert(ctx, db, row)
}

// copier copies sealed values of an event into rows. A copy carries the location where the
// value was sealed, which is needed to open it.
type copier struct {
	event   *event.Recorded
	subject string // person of the copied values; all values of a row are of one person
}

// copyMember copies a member of data if it is a sealed value or the mark "[REDACTED]".
// Other values are not copied: no row holds personal data in clear, which events from
// before key management may have.
func (c *copier) copyMember(member string, value json.RawMessage) string {
	if bytes.Equal(value, []byte(shredding.Redacted)) {
		return shredding.Redacted
	}
	found, err := shredding.FindSealed(value)
	if err != nil || len(found) != 1 || found[0].Pointer != "" {
		return ""
	}
	s := found[0]
	if s.Origin == nil { // a value that an upcaster moved already has its origin
		s.Origin = &shredding.Location{
			Partition: c.event.Partition, Kind: shredding.KindEvent, Record: c.event.ID,
			Type: c.event.Type, SchemaVersion: c.event.SchemaVersion, Pointer: "/data/" + member,
		}
	}
	c.subject = s.Subject.String()
	return string(s.Append(nil))
}
