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

// States of a bank account's request in ap.vendor_accounts.
const (
	accountRequested = "requested"
	accountApproved  = "approved"
	accountRejected  = "rejected"
)

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
	accountsTable = ports.ProjectionTable{Schema: "ap", Name: "vendor_accounts", Key: []string{"vendor_id", "request_id", "sequence"}}
)

// Tables implements ports.ProjectionTables.
func (p *VendorProjection) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{vendorsTable, contactsTable, accountsTable}
}

// Targets implements ports.ProjectionTargets. A target is a vendor with its contacts and
// bank accounts, which only events of its own stream write. The column subject names the person whose sealed
// values the row holds.
func (p *VendorProjection) Targets() []ports.ProjectionTarget {
	const vendor, subject = "vendor_id", "subject"
	return []ports.ProjectionTarget{{Streams: []string{contract.StreamVendor}, Tables: []ports.TargetTable{
		{ProjectionTable: vendorsTable, Entity: vendor, Subject: subject}, {ProjectionTable: contactsTable, Entity: vendor, Subject: subject},
		{ProjectionTable: accountsTable, Entity: vendor, Subject: subject},
	}}}
}

// Reset implements ports.ProjectionResetter.
func (p *VendorProjection) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return plugin.DeleteRows(ctx, tx, b, p.Tables())
}

func (p *VendorProjection) apply(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded) error {
	write := p.writer(e.Type)
	if write == nil {
		return nil
	}
	data, err := e.Data()
	if err != nil {
		return err
	}
	return write(ctx, db, version, e, data)
}

// writer finds the method that writes the row of an event; nil for other types.
func (p *VendorProjection) writer(eventType string) func(context.Context, pgx.Tx, int32, *event.Recorded, []byte) error {
	switch eventType {
	case contract.EventVendorRegistered:
		return p.addVendor
	case contract.EventVendorChanged, contract.EventVendorBlocked, contract.EventVendorUnblocked:
		return p.changeVendor
	case contract.EventContactRecorded, contract.EventContactRemoved:
		return p.addContact
	case contract.EventBankRequested, contract.EventBankChanged, contract.EventBankRejected:
		return p.addAccount
	default:
		return nil
	}
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
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), EffectiveDate: date(e.EffectiveDate),
		NaturalPerson: pgtype.Bool{Bool: v.NaturalPerson, Valid: true}, EventID: pgtype.UUID{Bytes: e.ID, Valid: true}, VendorID: v.VendorID,
		Country: pgtype.Text{String: v.Country, Valid: true}, Status: pgtype.Text{String: contract.VendorActive, Valid: true}, Name: string(v.Name),
	}
	if v.NaturalPerson {
		copies := copier{event: e}
		row.Name = copies.copyMember("person", v.Person)
		row.Subject = copies.subject
	}
	return p.queries.VendorInsert(ctx, db, row)
}

// changeVendor writes the columns that an event gives. A natural person has its name in person.
func (p *VendorProjection) changeVendor(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, data []byte) error {
	var v struct {
		VendorID string          `json:"vendor_id"`
		Country  string          `json:"country"`
		Status   string          `json:"status"`
		Name     json.RawMessage `json:"name"`
		Person   json.RawMessage `json:"person"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	row := &apdb.VendorChangeInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), EffectiveDate: date(e.EffectiveDate),
		VendorID: v.VendorID, Country: v.Country, Status: v.Status, Name: string(v.Name),
	}
	if len(v.Person) > 0 {
		copies := copier{event: e}
		row.Name = copies.copyMember("person", v.Person)
		row.Subject = copies.subject
	}
	return p.queries.VendorChangeInsert(ctx, db, row)
}

// addAccount writes the row of a request, or of the decision on one, which has no values.
func (p *VendorProjection) addAccount(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, data []byte) error {
	var a struct {
		VendorID  string          `json:"vendor_id"`
		RequestID string          `json:"request_id"`
		Currency  string          `json:"currency"`
		IBAN      json.RawMessage `json:"iban"`
		Account   json.RawMessage `json:"account"`
		Bank      json.RawMessage `json:"bank"`
		BIC       json.RawMessage `json:"bic"`
		Holder    json.RawMessage `json:"holder"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return err
	}
	copies := copier{event: e}
	row := &apdb.VendorAccountInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), EffectiveDate: date(e.EffectiveDate),
		VendorID: a.VendorID, RequestID: a.RequestID, Currency: a.Currency, State: accountStates[e.Type],
		Iban: copies.copyMember("iban", a.IBAN), Account: copies.copyMember("account", a.Account), Bank: copies.copyMember("bank", a.Bank),
		Bic: copies.copyMember("bic", a.BIC), Holder: copies.copyMember("holder", a.Holder),
	}
	row.Subject = copies.subject
	return p.queries.VendorAccountInsert(ctx, db, row)
}

var accountStates = map[string]string{
	contract.EventBankRequested: accountRequested, contract.EventBankChanged: accountApproved, contract.EventBankRejected: accountRejected,
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
