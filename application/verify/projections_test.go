package verify_test

import (
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestRun_Projections compares the definitions of custom projections with the administrative log.
func TestRun_Projections(t *testing.T) {
	t.Parallel()
	log, v := administered(t)
	rows, name := log.Database.ProjectionVersions, projection.CustomName("acme", "sums")
	encode := func(fold string) []byte {
		d, err := projection.Definition{TenantID: "acme", Key: ".id", Fold: fold}.Encode()
		require.NoError(t, err)
		return d
	}
	version := func(n int, role projection.Role, fold string) projection.Projection {
		return projection.Projection{Name: name, Version: n, Code: n, Role: role, Status: projection.Running, Settings: projection.DefaultSettings(), Definition: encode(fold)}
	}
	add := func(p projection.Projection) {
		_, err := rows.AddProjection(t.Context(), p)
		require.NoError(t, err)
	}
	decisions := log.Projections()
	record := func() ports.ProjectionRecord {
		r, err := decisions.Projection(t.Context(), "acme", "sums")
		require.NoError(t, err)
		return r
	}
	mismatch := []verify.FindingKind{verify.ProjectionMismatch}
	define := func(p projection.Projection) {
		require.NoError(t, decisions.Define(t.Context(), "acme", record(), p, "p-1"))
	}
	decide := func(d ports.ProjectionDecision) {
		d.By = "p-1"
		require.NoError(t, decisions.Decide(t.Context(), "acme", record(), d))
	}
	define(version(1, projection.Active, "1"))
	require.Equal(t, mismatch, kinds(t, v), "missing")
	add(version(1, projection.Active, "1"))
	require.Empty(t, kinds(t, v))
	define(version(2, projection.Building, "2"))
	require.Empty(t, kinds(t, v), "a version with the second definition is still to come")
	add(version(2, projection.Building, "2"))
	require.Empty(t, kinds(t, v))

	change := func(number int, edit func(*projection.Projection)) {
		all, err := rows.NamedProjections(t.Context(), name)
		require.NoError(t, err)
		edit(&all[number-1])
		_, err = rows.ChangeProjection(t.Context(), all[number-1])
		require.NoError(t, err)
	}
	change(1, func(p *projection.Projection) { p.Status = projection.Faulted })
	require.Empty(t, kinds(t, v), "a node halted it")
	change(1, func(p *projection.Projection) { p.Status = projection.Paused })
	require.Equal(t, mismatch, kinds(t, v), "no person paused it")
	paused := record().Versions[0]
	paused.Status = projection.Paused
	decide(ports.ProjectionDecision{Action: ports.ProjectionOperated, Version: 1, Operation: projection.Pause, Versions: record().Versions.With(paused)})
	require.Empty(t, kinds(t, v))
	change(2, func(p *projection.Projection) { p.Settings.MaxAttempts++ })
	require.Equal(t, mismatch, kinds(t, v), "other settings")
	change(2, func(p *projection.Projection) { p.Settings.MaxAttempts-- })

	require.NoError(t, rows.SwitchProjection(t.Context(), ports.ProjectionSwitch{Projection: name, From: 1, To: 2, Force: true}))
	require.Equal(t, append(mismatch, mismatch...), kinds(t, v), "no event activated version 2")
	decide(ports.ProjectionDecision{Action: ports.ProjectionActivated, Version: 2, Versions: record().Versions.Activate(record().Versions[1])})
	require.Empty(t, kinds(t, v))
	require.NoError(t, decisions.Decide(t.Context(), "acme", ports.ProjectionRecord{Name: "ap.vendors"}, ports.ProjectionDecision{Action: ports.ProjectionConfigured, Version: 1, By: "p-1"}))
	require.Empty(t, kinds(t, v), "a projection of a module has no versions in the log")

	require.NoError(t, decisions.Remove(t.Context(), "acme", record(), "p-1"))
	require.Equal(t, append(mismatch, mismatch...), kinds(t, v), "removed")
	require.NoError(t, log.Database.ProjectionRows.EndProjection(t.Context(), name, "p-1"))
	require.Empty(t, kinds(t, v))
	define(version(3, projection.Active, "3"))
	add(version(3, projection.Active, "2"))
	require.Equal(t, mismatch, kinds(t, v), "another definition, of before")
}

// TestRun_ProjectionsOfVersion1 verifies events as an earlier release wrote them, before and after a
// node of this one has started.
func TestRun_ProjectionsOfVersion1(t *testing.T) {
	t.Parallel()
	log, v := administered(t)
	rows := log.Database.ProjectionVersions
	encode := func(fold string) []byte {
		return testkit.Must(projection.Definition{TenantID: "acme", Key: ".id", Fold: fold}.Encode())
	}
	digest := func(fold string) string {
		d := projection.DefinitionDigest(encode(fold))
		return hex.EncodeToString(d[:])
	}
	add := func(name string, n int, role projection.Role, fold string) {
		p := projection.Projection{Name: projection.CustomName("acme", name), Version: n, Code: n, Role: role, Status: projection.Paused, Settings: projection.DefaultSettings(), Definition: encode(fold)}
		testkit.Must(rows.AddProjection(t.Context(), p))
	}
	record := func(name string, expected concurrency.Expected, eventType string, data map[string]any) {
		stream := event.StreamID{Type: "backbone.projection", ID: name}
		data["projection"] = name
		require.NoError(t, log.Record(t.Context(), "acme", event.Actor{}, concurrency.StreamExpectation{Stream: stream, Expected: expected}, event.Draft{
			Type: eventType, SchemaVersion: 1, Stream: stream, Data: data, Source: event.Source{System: "backbone", Channel: "administration"},
		}))
	}
	defined := func(n int, fold string, others ...string) map[string]any {
		data := map[string]any{"version": n, "definition": json.RawMessage(encode(fold)), "definition_sha256": digest(fold)}
		if len(others) > 0 {
			data["other_definitions_sha256"] = others
		}
		return data
	}
	record("sums", concurrency.NoStream(), administration.ProjectionDefined, defined(1, "1", digest("0")))
	record("sums", concurrency.Exactly(1), administration.ProjectionDefined, defined(3, "3"))
	record("gone", concurrency.NoStream(), administration.ProjectionDefined, defined(1, "1"))
	record("gone", concurrency.Exactly(1), administration.ProjectionRemoved, map[string]any{})
	add("sums", 1, projection.Retained, "0")
	add("sums", 2, projection.Active, "1")
	add("sums", 3, projection.Building, "3")
	require.Empty(t, kinds(t, v), "an earlier release did not record status, settings and roles")
	add("forged", 1, projection.Active, "1")
	record("edited", concurrency.NoStream(), administration.ProjectionDefined, defined(1, "1"))
	add("edited", 1, projection.Active, "2")
	forged := []verify.FindingKind{verify.ProjectionMismatch, verify.ProjectionMismatch}
	require.Equal(t, forged, kinds(t, v))

	for range 2 { // the second one finds all recorded
		log.Log = log.Node(administration.AdoptProjectionVersions(rows.ListProjections))
		testkit.Must(log.Of(t.Context(), "acme"))
	}
	require.Equal(t, forged, kinds(t, v), "what was forged before is not adopted")
	record2, err := log.Projections().Projection(t.Context(), "acme", "sums")
	require.NoError(t, err)
	require.EqualValues(t, 3, record2.Version)
	require.Len(t, record2.Versions, 3)
	require.Equal(t, projection.Paused, record2.Versions.Active().Status)

	decided, _ := record2.Versions.Find(3)
	require.NoError(t, log.Projections().Decide(t.Context(), "acme", record2, ports.ProjectionDecision{Action: ports.ProjectionActivated, Version: 3, By: "p-1", Versions: record2.Versions.Activate(decided)}))
	require.Equal(t, append(forged, forged...), kinds(t, v)[:4], "readers do not see it")
	require.NoError(t, rows.SwitchProjection(t.Context(), ports.ProjectionSwitch{Projection: projection.CustomName("acme", "sums"), From: 2, To: 3, Force: true}))
	require.Equal(t, forged, kinds(t, v))
}
