package configs

import (
	"embed"
	"fmt"
)

// Policy configures the evaluation of policies.
type Policy struct {
	CachedDecisions int `config:"cached_decisions"` // decisions that a node caches; equal input has an equal decision
}

//go:embed policy/*.rego
var policyFiles embed.FS

// Policies returns Backbone's own Rego files, source by path: backbone.authz, which authorizes
// calls of the API, and backbone.rules, whose functions the policies of modules share.
func Policies() map[string]string {
	const folder = "policy"
	entries, err := policyFiles.ReadDir(folder)
	if err != nil {
		panic(fmt.Sprintf("embedded policies: %v", err)) // the build embeds the folder
	}
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		path := folder + "/" + e.Name()
		source, err := policyFiles.ReadFile(path)
		if err != nil {
			panic(fmt.Sprintf("embedded policies: %v", err))
		}
		out["configs/"+path] = string(source)
	}
	return out
}
