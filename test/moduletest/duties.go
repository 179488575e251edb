package moduletest

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Duty is a row of a table of segregation of duties.
type Duty struct {
	Rule             string
	First, FirstBy   string            // a step, and who took it
	Second, SecondBy string            // a step, and who tries it
	Outcomes         map[string]string // of the second step, by its actor's role
}

// ReadDuties reads testdata/sod.txt of the test's package: a line with the columns, the last of which are
// roles, and a line for each Duty. Every pair of steps must have a row for each way in which the table
// lets the second step be tried, and every role must have a column.
func ReadDuties(t testing.TB, roles []string) []Duty {
	t.Helper()
	text, err := os.ReadFile("testdata/sod.txt")
	require.NoError(t, err)
	var columns []string
	var duties []Duty
	tried, seconds := map[[3]string]int{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Fields(line)
		switch {
		case len(cells) == 0 || line[0] == '#':
			continue
		case columns == nil:
			columns = cells[5:]
			require.Subset(t, columns, roles)
			continue
		}
		require.Len(t, cells, 5+len(columns), line)
		d := Duty{Rule: cells[0], First: cells[1], FirstBy: cells[2], Second: cells[3], SecondBy: cells[4], Outcomes: map[string]string{}}
		for i, role := range columns {
			d.Outcomes[role] = cells[5+i]
		}
		duties = append(duties, d)
		tried[[3]string{d.First, d.FirstBy, d.Second}]++
		seconds[d.SecondBy] = true
	}
	for row, n := range tried {
		require.Equal(t, len(seconds), n, "rows of %v", row)
	}
	return duties
}

// Acting is a caller with one role: "human:ann", "system:robot", or "agent:bot>ann" for one that acts for
// a person.
func Acting(tenantID, by, role string) pipeline.Caller {
	kind, rest, _ := strings.Cut(by, ":")
	id, person, delegated := strings.Cut(rest, ">")
	a := event.Actor{Type: event.ActorType(kind), ID: id, Name: role}
	if delegated {
		a.Details.OnBehalfOf = &event.Delegate{Type: string(event.Human), ID: person}
	}
	return pipeline.Caller{Principal: ports.Principal{TenantID: tenantID, PersonID: id, PrincipalID: id, ActorType: a.Type, Roles: []string{role}}, Actor: a}
}
