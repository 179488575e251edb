package globallog

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Policy says whose signatures make a checkpoint valid (c2sp.org/tlog-policy): that of one of the logs, and those of
// a quorum of witnesses.
type Policy struct {
	Logs      []PolicyKey
	Witnesses []PolicyKey
	members   map[string]group // by name: witnesses and groups
	quorum    string
}

// PolicyKey is a log or a witness.
type PolicyKey struct {
	Key string // verifier key
	URL string // "": none
}

// group is a witness, which has a key, or a group, of which so many members must have signed.
type group struct {
	key      string
	members  []string
	required int
}

// noQuorum is the quorum that requires no witness.
const noQuorum = "none"

// Bounds of a policy: the signatures of all its witnesses are part of each checkpoint.
const (
	maxPolicyLines    = 1000
	maxPolicyLine     = 1000 // bytes
	maxWitnesses      = 50
	maxWitnessKeySize = 200 // bytes
)

// ParsePolicy parses the text of a policy. It does not check the keys. Fault global_log.policy_malformed (Invalid),
// which names the line.
func ParsePolicy(text []byte) (Policy, error) {
	p := Policy{members: map[string]group{noQuorum: {}}}
	used := map[string]bool{noQuorum: true}
	for i, line := range strings.Split(string(text), "\n") {
		malformed := func(what string) (Policy, error) {
			return Policy{}, fault.New(fault.Invalid, "global_log.policy_malformed", "line %d of the policy of witnesses: %s", i+1, what)
		}
		if i == maxPolicyLines || len(line) > maxPolicyLine || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return malformed("it is too long, or has other characters than the format allows")
		}
		words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		var ok bool
		switch words[0] {
		case "log":
			ok = p.addLog(words[1:])
		case "witness":
			ok = p.addWitness(words[1:])
		case "group":
			ok = p.addGroup(words[1:], used)
		case "quorum":
			ok = len(words) == 2 && p.quorum == "" && p.has(words[1])
			if ok {
				p.quorum = words[1]
			}
		}
		if !ok {
			return malformed("it is none of `log KEY [URL]`, `witness NAME KEY [URL]`, `group NAME all|any|NUMBER NAME…` and one `quorum NAME`, with names of lines before, each key and name once, and at most 50 witnesses")
		}
	}
	if p.quorum == "" {
		return Policy{}, fault.New(fault.Invalid, "global_log.policy_malformed", "the policy of witnesses has no quorum; add a line `quorum NAME`, or `quorum none`")
	}
	return p, nil
}

func (p *Policy) has(name string) bool {
	_, known := p.members[name]
	return known
}

// keyIn reports whether one of the keys has the public key of another one, whatever its name and algorithm.
func keyIn(keys []PolicyKey, key string) bool {
	_, public := keyMaterial(key)
	return slices.ContainsFunc(keys, func(k PolicyKey) bool {
		_, other := keyMaterial(k.Key)
		return other == public
	})
}

// keyMaterial are the algorithm and the public key of a verifier key; of one that is malformed 0 and its text.
func keyMaterial(key string) (algorithm byte, public string) {
	_, rest, _ := strings.Cut(key, "+") // after the name
	_, encoded, _ := strings.Cut(rest, "+")
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(raw) == 0 {
		return 0, encoded
	}
	return raw[0], string(raw[1:])
}

// IsLogKey reports whether a verifier key is one with which logs sign, and not one of a witness.
func IsLogKey(key string) bool {
	algorithm, _ := keyMaterial(key)
	return algorithm == 0x01
}

func keyOf(words []string) (k PolicyKey, ok bool) {
	if len(words) == 0 || len(words) > 2 {
		return k, false
	}
	k.Key = words[0]
	if len(words) == 2 {
		k.URL = words[1]
	}
	return k, true
}

func (p *Policy) addLog(words []string) bool {
	k, ok := keyOf(words)
	if ok = ok && !keyIn(p.Logs, k.Key); ok {
		p.Logs = append(p.Logs, k)
	}
	return ok
}

func (p *Policy) addWitness(words []string) bool {
	if len(words) == 0 || p.has(words[0]) {
		return false
	}
	k, ok := keyOf(words[1:])
	if ok = ok && !keyIn(p.Witnesses, k.Key) && len(p.Witnesses) < maxWitnesses && len(k.Key) <= maxWitnessKeySize; ok {
		p.Witnesses = append(p.Witnesses, k)
		p.members[words[0]] = group{key: k.Key}
	}
	return ok
}

func (p *Policy) addGroup(words []string, used map[string]bool) bool {
	if len(words) < 3 || p.has(words[0]) {
		return false
	}
	members := words[2:]
	for _, name := range members {
		if used[name] || !p.has(name) {
			return false
		}
		used[name] = true
	}
	required, err := strconv.Atoi(words[1])
	switch words[1] {
	case "all":
		required, err = len(members), nil
	case "any":
		required, err = 1, nil
	}
	if err != nil || required < 1 || required > len(members) || words[1][0] == '+' {
		return false
	}
	p.members[words[0]] = group{members: members, required: required}
	return true
}

// Keys are the verifier keys of all logs and witnesses.
func (p *Policy) Keys() (keys []string) {
	for _, k := range slices.Concat(p.Logs, p.Witnesses) {
		keys = append(keys, k.Key)
	}
	return keys
}

// IsWitnessed reports whether the quorum is among the keys that signed.
func (p *Policy) IsWitnessed(signed []string) bool {
	return p.quorum == noQuorum || p.isWitnessed(p.quorum, signed)
}

func (p *Policy) isWitnessed(name string, signed []string) bool {
	g := p.members[name]
	if g.key != "" {
		return slices.Contains(signed, g.key)
	}
	n := 0
	for _, member := range g.members {
		if p.isWitnessed(member, signed) {
			n++
		}
	}
	return n >= g.required
}
