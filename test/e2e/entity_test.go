package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type entityState struct {
	State       json.RawMessage `json:"state"`
	Version     string          `json:"version"`
	Head        string          `json:"head_version"`
	Count       int             `json:"event_count"`
	Folded      int             `json:"events_folded"`
	Consistency string          `json:"consistency"`
	Snapshot    *struct {
		AsOf string `json:"as_of_sequence"`
	} `json:"snapshot"`
}

// TestEntityConsistencyLevels follows a machine with a long history through the
// API and the command line, until a back-dated event makes its snapshot stale.
func TestEntityConsistencyLevels(t *testing.T) {
	t.Parallel()
	const entity, name = "ENTX", "mill.roll.measured"
	d := sharedDev(t)
	newEntity(t, d, entity)
	module, auditor := d.as(t, "module"), d.as(t, "auditor")
	require.NoError(t, d.as(t, "admin").want(http.StatusCreated, nil, "POST", "/api/event-types", fmt.Sprintf(
		`{"type":%q,"schema_version":1,"module":"mill","data_schema":{"type":"object","additionalProperties":false,"properties":{"gauge":{"type":"number"},"n":{"type":"integer"}}}}`, name)))
	measured := 0
	measure := func(day string, n int) {
		var batch []string
		for range n {
			measured++
			batch = append(batch, fmt.Sprintf(`{"type":%q,"scope":{"legal_entity":%q},"stream":{"type":"roll","id":"R-1"},"effective_date":%q,"data":{"gauge":1.50,"n":%d},"entities":[{"entity_type":"roll","entity_id":"R/1","role":"subject"}]}`,
				name, entity, day, measured))
		}
		require.NoError(t, module.want(http.StatusCreated, nil, "POST", "/api/events", `{"events":[`+strings.Join(batch, ",")+`]}`))
	}
	read := func(more string) (e entityState) {
		require.NoError(t, auditor.want(http.StatusOK, &e, "GET", "/api/entities/roll/R%2F1?legal_entity="+entity+more, ""))
		return e
	}
	for range 3 {
		measure("2026-03-01", 50)
	}
	e := read("")
	require.Equal(t, `{"gauge":1.50,"n":150}`, string(e.State))
	require.Eventually(t, func() bool { return read("").Snapshot != nil }, liveTime, 20*time.Millisecond, "a snapshot is taken after the answer")
	measure("2026-03-05", 2)
	e = read("")
	require.Equal(t, []any{"strong", 152}, []any{e.Consistency, e.Count})
	// Other tests that change their event types may invalidate a snapshot in between.
	require.Eventually(t, func() bool {
		strong, eventual, verified := read(""), read("&consistency=eventual"), read("&consistency=verified")
		return strong.Folded <= 2 && eventual.Consistency == "eventual" && eventual.Folded == 0 && eventual.Count <= 152 && verified.Consistency == "verified"
	}, liveTime, 20*time.Millisecond)
	require.Equal(t, 150, read("&as_of=2026-03-04").Count)

	measure("2026-02-01", 1)
	e = read("&consistency=verified")
	require.Equal(t, []any{"strong", 153, true}, []any{e.Consistency, e.Count, e.Snapshot == nil}, "the snapshots are stale, and it is folded from its events")
	e = read("&known_at=seq:" + e.Version + "&as_of=2026-02-28")
	require.Equal(t, `{"gauge":1.50,"n":153}`, string(e.State))

	environment := append(d.as(t, "auditor").environment(), "BACKBONE_LEGAL_ENTITY="+entity)
	r := command(t, environment, "entity", "roll", "R/1", "--as-of", "2026-03-04")
	require.Zero(t, r.code, r)
	require.Regexp(t, `(?s)entity +roll R/1 of ENTX\nversion +153, as of sequence 153\nconsistency +strong\nas of +2026-03-04\nevents +151, .*"n": 153`, r.stdout)
	r = command(t, environment, "entity", "roll", "R/1", "--consistency", "eventual", "--json")
	require.Zero(t, r.code, r)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &e))
	require.NotEmpty(t, e.Version)
	r = command(t, environment, "entity", "roll", "R-9")
	require.Equal(t, 1, r.code, r)
	require.Contains(t, r.stderr, "entity.not_found")

	// A client's own snapshot of the stream.
	at := "/api/snapshots/roll/R-1"
	require.NoError(t, module.want(http.StatusCreated, nil, "POST", at+"?legal_entity="+entity, `{"version":153,"state":{"n":153},"state_type":"Roll","schema_version":1}`))
	var s struct {
		Version int             `json:"version"`
		State   json.RawMessage `json:"state"`
	}
	require.NoError(t, auditor.want(http.StatusOK, &s, "GET", at+"/latest?legal_entity="+entity, ""))
	require.Equal(t, 153, s.Version)
	require.JSONEq(t, `{"n":153}`, string(s.State))
}
