package eventlog

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
)

// EnvelopeColumn is a column of backbone.events and the field of the envelope that it
// holds. The insert statement, the append engine's parameters and the decoding of rows are
// all made of EnvelopeColumns. A new field is one entry there, after the migration, and one
// with the next free tag in event.Skeleton.AppendPreimage.
type EnvelopeColumn struct {
	Name    string
	Element uint32 // type OID of the parameter's elements
	cast    string // JSON and text arrays are sent as text, so that the stored bytes are the hashed ones
	// Write adds the field to the parameter.
	Write func(c *pg.Column, e *event.Skeleton)
	read  func(e *event.Skeleton, r *eventlogdb.BackboneEvent)
}

const (
	castJSON  = "::json"
	castTexts = "::text[]"
)

// EnvelopeColumns lists all columns, in the order of the insert statement's parameters.
// Absent text is "" in an event and NULL in its row; absent JSON is nil and NULL. decode
// checks the lengths of the hashes and decodes the PII.
var EnvelopeColumns = [...]EnvelopeColumn{
	{"partition_id", pgtype.Int4OID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Int4(int32(e.Partition)) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Partition = event.PartitionID(r.PartitionID) }},
	{"sequence", pgtype.Int8OID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Int8(int64(e.Sequence)) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Sequence = event.Sequence(r.Sequence) }},
	{"id", pgtype.UUIDOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Bytes(e.ID[:]) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.ID = r.ID.Bytes }},
	{"type", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Text(e.Type) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Type = r.Type }},
	{"schema_version", pgtype.Int4OID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Int4(int32(e.SchemaVersion)) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.SchemaVersion = uint32(r.SchemaVersion) }},
	{"occurred_at", pgtype.TimestamptzOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Time(e.OccurredAt) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.OccurredAt = r.OccurredAt.UTC() }},
	{"recorded_at", pgtype.TimestamptzOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Time(e.RecordedAt) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.RecordedAt = r.RecordedAt.UTC() }},
	{"effective_date", pgtype.DateOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Date(e.EffectiveDate) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) {
			e.EffectiveDate = event.DateOf(r.EffectiveDate.Time)
		}},
	{"tenant_id", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Text(e.Scope.TenantID) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Scope.TenantID = r.TenantID }},
	{"legal_entity", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Text(e.Scope.LegalEntity) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Scope.LegalEntity = r.LegalEntity }},
	{"division", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Optional(e.Scope.Division) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Scope.Division = r.Division.String }},
	{"region", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Optional(e.Scope.Region) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Scope.Region = r.Region.String }},
	{"site", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Optional(e.Scope.Site) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Scope.Site = r.Site.String }},
	{"custom_scopes", pgtype.TextOID, castJSON,
		func(c *pg.Column, e *event.Skeleton) { c.JSON(e.Scope.Custom) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Scope.Custom = r.CustomScopes }},
	{"actor_type", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Text(string(e.ActorType)) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.ActorType = event.ActorType(r.ActorType) }},
	{"actor_id", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Text(e.ActorID) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.ActorID = r.ActorID }},
	{"actor_name", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Optional(e.ActorName) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.ActorName = r.ActorName.String }},
	{"actor_details", pgtype.TextOID, castJSON,
		func(c *pg.Column, e *event.Skeleton) { c.JSON(e.ActorDetails) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.ActorDetails = r.ActorDetails }},
	{"caused_by", pgtype.UUIDOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.ID(e.CausedBy) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.CausedBy = r.CausedBy.Bytes }},
	{"caused_by_partition", pgtype.Int4OID, "",
		func(c *pg.Column, e *event.Skeleton) { c.OptionalInt4(int32(e.CausedByPartition)) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) {
			e.CausedByPartition = event.PartitionID(r.CausedByPartition.Int32)
		}},
	{"intent_id", pgtype.UUIDOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.ID(e.IntentID) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.IntentID = r.IntentID.Bytes }},
	{"correlation_id", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Text(e.CorrelationID) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.CorrelationID = r.CorrelationID }},
	{"stream_type", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Text(e.Stream.Type) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Stream.Type = r.StreamType }},
	{"stream_id", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Text(e.Stream.ID) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Stream.ID = r.StreamID }},
	{"stream_version", pgtype.Int8OID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Int8(int64(e.StreamVersion)) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.StreamVersion = event.Version(r.StreamVersion) }},
	{"tags", pgtype.TextOID, castTexts,
		func(c *pg.Column, e *event.Skeleton) { c.List(e.Tags) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Tags = r.Tags }},
	{"source_system", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Optional(e.Source.System) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Source.System = r.SourceSystem.String }},
	{"source_channel", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Optional(e.Source.Channel) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Source.Channel = r.SourceChannel.String }},
	{"source_reference", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Optional(e.Source.Reference) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.Source.Reference = r.SourceReference.String }},
	{"rules_evaluated", pgtype.TextOID, castJSON,
		func(c *pg.Column, e *event.Skeleton) { c.JSON(e.RulesEvaluated) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.RulesEvaluated = r.RulesEvaluated }},
	{"pii", pgtype.TextOID, castJSON,
		func(c *pg.Column, e *event.Skeleton) { c.JSONTexts(e.PII) },
		func(*event.Skeleton, *eventlogdb.BackboneEvent) {}},
	{"payload_hash", pgtype.ByteaOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Bytes(e.PayloadHash[:]) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { copy(e.PayloadHash[:], r.PayloadHash) }},
	{"content_encoding", pgtype.TextOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Optional(e.ContentEncoding) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { e.ContentEncoding = r.ContentEncoding.String }},
	{"checksum", pgtype.ByteaOID, "",
		func(c *pg.Column, e *event.Skeleton) { c.Bytes(e.Checksum[:]) },
		func(e *event.Skeleton, r *eventlogdb.BackboneEvent) { copy(e.Checksum[:], r.Checksum) }},
}

// InsertEvents inserts the events of a group. Rows come as parallel arrays, one for each
// of EnvelopeColumns, and are joined to the head rows whose partitions the last parameter
// lists: a sharded cluster under row security accepts that form. ORDER BY inserts them in the
// order of their primary keys, whatever plan the join has: rows in descending order would split
// the last page of an index in its middle each time.
var InsertEvents = insertEvents()

func insertEvents() string {
	var names, values, parameters []string
	types := pgtype.NewMap()
	for i, c := range EnvelopeColumns {
		names = append(names, c.Name)
		value := "u." + c.Name + c.cast
		if c.Name == "partition_id" {
			value = "h.partition_id"
		}
		values = append(values, value)
		element, _ := types.TypeForOID(c.Element) // pgx knows them all
		parameters = append(parameters, fmt.Sprintf("unnest($%d::%s[]) AS %s", i+1, element.Name, c.Name))
	}
	return fmt.Sprintf(`-- name: InsertEvents :execrows

INSERT INTO backbone.events (%s)
SELECT %s
FROM backbone.partition_heads h
JOIN (SELECT %s) u
  ON u.partition_id = h.partition_id
WHERE h.partition_id = ANY ($%d::int[])
ORDER BY h.partition_id, u.sequence
`, strings.Join(names, ", "), strings.Join(values, ", "), strings.Join(parameters, ",\n             "), len(EnvelopeColumns)+1)
}
