package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDecisionsOverHTTP lets twelve clients book five slots of a machine: each reads the
// bookings and appends under the condition of its read.
func TestDecisionsOverHTTP(t *testing.T) {
	t.Parallel()
	const entity, clients, slots = "DCBX", 12, 5
	d := sharedDev(t)
	newEntity(t, d, entity)
	registerMachines(t, d)
	module := d.as(t, "module")
	query := func(after string, limit int) (events []event, more bool, condition json.RawMessage, err error) {
		var page struct {
			Events    []event         `json:"events"`
			HasMore   bool            `json:"has_more"`
			Condition json.RawMessage `json:"append_condition"`
		}
		err = module.want(200, &page, "POST", "/api/query", fmt.Sprintf(
			`{"legal_entity":%q,"items":[{"types":[%q],"entities":[{"entity_type":"machine","entity_id":"M-1"}]},{"tags":["slot","never"]}],"after":%q,"limit":%d}`,
			entity, machineType, after, limit))
		return page.Events, page.HasMore, page.Condition, err
	}
	book := func(machine, tag string, condition json.RawMessage) (answer, error) {
		return module.do("POST", "/api/events", strings.TrimSuffix(batch(with(machineServiced(entity, machine, `{"hours":1}`), `"tags":["slot",`+tag+`]`)), "}")+
			`,"append_condition":`+string(condition)+`}`)
	}

	booked := make([]int, clients)
	errs := make([]error, clients)
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			errs[i] = func() error {
				for {
					events, _, condition, err := query("0", 100)
					if err != nil || len(events) >= slots {
						return err
					}
					a, err := book("M-1", fmt.Sprintf(`"client-%d"`, i), condition)
					switch {
					case err != nil:
						return err
					case a.status == http.StatusCreated:
						booked[i]++
					case a.code() != "append.condition_failed":
						return fmt.Errorf("a booking was answered %s", a)
					}
				}
			}()
		})
	}
	running.Wait()
	total := 0
	for i := range clients {
		require.NoError(t, errs[i])
		total += booked[i]
	}
	require.Equal(t, slots, total)

	// An append under the condition of a page fails while further events follow the page.
	events, more, condition, err := query("0", 2)
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.True(t, more)
	a, err := book("M-2", `"x"`, condition)
	require.NoError(t, err)
	require.Equal(t, "append.condition_failed", a.code())
	var read struct {
		After string `json:"after"`
	}
	require.NoError(t, json.Unmarshal(condition, &read))
	events, more, condition, err = query(read.After, 100)
	require.NoError(t, err)
	require.Len(t, events, slots-2)
	require.False(t, more)
	a, err = book("M-2", `"x"`, condition)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, a.status, a)
	a, err = book("M-2", `"x"`, condition)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, a.status, "events of another machine break nothing")
}

// TestCausesAcrossLegalEntities follows a process through two legal entities.
func TestCausesAcrossLegalEntities(t *testing.T) {
	t.Parallel()
	d := sharedDev(t)
	newEntity(t, d, "CAUA")
	newEntity(t, d, "CAUB")
	registerMachines(t, d)
	module, auditor := d.as(t, "module"), d.as(t, "auditor")
	write := func(entity, members string) string {
		t.Helper()
		var r receipts
		require.NoError(t, module.want(http.StatusCreated, &r, "POST", "/api/events", batch(with(machineServiced(entity, "M-1", `{"hours":1}`), `"correlation_id":"repair/7"`+members))))
		return r.Events[0].ID
	}
	caused := func(by, in string) string { return fmt.Sprintf(`,"caused_by":%q,"caused_by_legal_entity":%q`, by, in) }
	root := write("CAUA", "")
	second := write("CAUB", caused(root, "CAUA"))
	third := write("CAUB", caused(second, "CAUB"))
	last := write("CAUA", caused(third, "CAUB"))

	var lineage struct {
		Lineage   []event `json:"lineage"`
		Truncated bool    `json:"truncated"`
	}
	require.NoError(t, auditor.want(200, &lineage, "GET", "/api/events/"+last+"/lineage", ""))
	require.False(t, lineage.Truncated)
	require.Len(t, lineage.Lineage, 4)
	var tree struct {
		Descendants []struct {
			Event  event  `json:"event"`
			Parent string `json:"parent"`
			Depth  int    `json:"depth"`
		} `json:"descendants"`
		Truncated bool `json:"truncated"`
	}
	require.NoError(t, auditor.want(200, &tree, "GET", "/api/events/"+root+"/descendants", ""))
	require.False(t, tree.Truncated)
	parent := root
	require.Len(t, tree.Descendants, 3)
	for i, id := range []string{second, third, last} {
		require.Equal(t, id, tree.Descendants[i].Event.ID)
		require.Equal(t, parent, tree.Descendants[i].Parent)
		require.Equal(t, i+1, tree.Descendants[i].Depth)
		parent = id
	}
	var process struct {
		Events   []event  `json:"events"`
		Steps    []any    `json:"steps"`
		Actors   []string `json:"actors_involved"`
		Duration float64  `json:"process_duration_ms"`
	}
	require.NoError(t, auditor.want(200, &process, "GET", "/api/events/process/"+url.PathEscape("repair/7"), ""))
	require.Len(t, process.Events, 4)
	require.Len(t, process.Steps, 4)
	require.Equal(t, []string{"s-module"}, process.Actors)
	require.Positive(t, process.Duration)
}
