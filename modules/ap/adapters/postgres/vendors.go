package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/ports"
)

// Vendors answers ap/vendors.
type Vendors struct {
	pool    *pgxpool.Pool
	queries *apdb.Queries
}

var _ ports.ReadModelSource = (*Vendors)(nil)

// NewVendors makes the source. The role of the pool must be able to read the schema ap.
func NewVendors(pool *pgxpool.Pool) *Vendors { return &Vendors{pool: pool, queries: apdb.New()} }

// vendorRow has personal values as they are stored: sealed copies, or "[REDACTED]".
type vendorRow struct {
	VendorID      string          `json:"vendor_id"`
	Name          json.RawMessage `json:"name"`
	Country       string          `json:"country"`
	Status        string          `json:"status"`
	NaturalPerson bool            `json:"natural_person"`
	Contacts      json.RawMessage `json:"contacts"`
	Bank          json.RawMessage `json:"bank"`
	EventID       string          `json:"event_id"`
}

// Query implements ports.ReadModelSource. Rows are vendors by id with their contacts and
// bank accounts as of the date. Personal values are sealed; the caller of Query opens them for the
// reader. Fault: cursor.invalid.
func (v *Vendors) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	params := &apdb.VendorsParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), AsOf: date(q.AsOf), VendorID: q.Params[paramVendor], PageSize: int32(q.Limit + 1),
	}
	if q.Cursor != "" {
		if err := json.Unmarshal([]byte(q.Cursor), &params.AfterVendorID); err != nil {
			return ports.Report{}, fault.New(fault.Invalid, "cursor.invalid", "this cursor was not made by this report; ask again without one").WithField("cursor")
		}
	}
	found, err := v.queries.Vendors(ctx, v.pool, params)
	if err != nil {
		return ports.Report{}, fmt.Errorf("vendors: %w", err)
	}
	report := ports.Report{Header: ports.ReportFields{
		{Name: "legal_entity", Value: q.Entity.Code}, {Name: "as_of", Value: q.AsOf.String()}, {Name: "known_at", Value: q.KnownAt},
		{Name: "sequence", Value: fmt.Sprint(uint64(q.Known))},
	}}
	if id := q.Params[paramVendor]; id != "" {
		report.Header = append(report.Header, ports.ReportField{Name: paramVendor, Value: id})
	}
	if report.HasMore = len(found) > q.Limit; report.HasMore {
		found = found[:q.Limit]
		after, err := json.Marshal(found[q.Limit-1].VendorID)
		if err != nil {
			return ports.Report{}, err
		}
		report.NextCursor = string(after)
	}
	report.Rows = make([]any, len(found))
	for i, r := range found {
		var id pgtype.UUID
		if err := id.Scan(r.EventID); err != nil {
			return ports.Report{}, fmt.Errorf("vendor %s: %w", r.VendorID, err)
		}
		report.Rows[i] = vendorRow{
			VendorID: r.VendorID, Name: json.RawMessage(r.Name), Country: r.Country, Status: r.Status, NaturalPerson: r.NaturalPerson,
			Contacts: json.RawMessage(r.Contacts), Bank: json.RawMessage(r.Bank), EventID: event.ID(id.Bytes).String(),
		}
	}
	return report, nil
}
