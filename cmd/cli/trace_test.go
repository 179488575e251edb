package cli

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
)

func TestAboutLine(t *testing.T) {
	t.Parallel()
	require.Empty(t, aboutLine(nil))
	require.Equal(t, "about vendor V-1, invoice V-1", aboutLine([]client.EntityReference{
		{EntityType: "vendor", EntityID: "V-1", Role: "subject"}, {EntityType: "invoice", EntityID: "V-1"}, {EntityType: "vendor", EntityID: "V-1", Role: "payee"},
	}))
	var many []client.EntityReference
	for n := range maxEntitiesListed + 2 {
		many = append(many, client.EntityReference{EntityType: "machine", EntityID: fmt.Sprint(n)})
	}
	line := aboutLine(many)
	require.Contains(t, line, "machine 19 and 2 more")
	require.NotContains(t, line, "machine 20")
}

// A process of a night's run is about hundreds of thousands of entities. The time only says
// that no entity is compared with every other one.
func TestAboutLineManyEntities(t *testing.T) {
	t.Parallel()
	const many = 300_000
	entities := make([]client.EntityReference, 0, 2*many)
	for range 2 {
		for n := range many {
			entities = append(entities, client.EntityReference{EntityType: "machine", EntityID: fmt.Sprintf("%09d", n)})
		}
	}
	line := make(chan string, 1)
	go func() { line <- aboutLine(entities) }()
	select {
	case got := <-line:
		require.Contains(t, got, "about machine 000000000, machine 000000001, ")
		require.Contains(t, got, fmt.Sprintf("machine 000000019 and %d more", many-maxEntitiesListed))
	case <-time.After(time.Minute):
		require.Fail(t, "it is still comparing")
	}
}
