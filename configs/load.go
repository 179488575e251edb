package configs

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
)

const envPrefix = "BACKBONE_"

// Error names the first wrong setting and what to write instead. It never quotes the value,
// which may be a password.
type Error struct {
	Key     string // such as "database.read_pool", or the name of an environment variable; "": the file as a whole
	Problem string // ends with what to write instead
	cause   error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Key == "" {
		return "configuration: " + e.Problem
	}
	return "configuration: " + e.Key + " " + e.Problem
}

// Unwrap returns the cause, if any.
func (e *Error) Unwrap() error { return e.cause }

// Load reads the file at path, if path is not empty, and the environment, which wins over the
// file. Every error is an *Error: a file that cannot be read, an unknown key, a value of the
// wrong type or out of range.
func Load(path string) (Config, error) { return load(path, os.Environ) }

func load(path string, environ func() []string) (Config, error) {
	c := Default()
	fields := fieldsOf(&c)
	k := koanf.New(".")
	if path != "" {
		if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
			return Config{}, &Error{Problem: "cannot read the file " + path + "; give a readable YAML file", cause: err}
		}
	}
	if err := refuseUnknownKeys(k, fields); err != nil {
		return Config{}, err
	}
	keys := map[string]string{} // by variable
	for key := range fields {
		keys[variableOf(key)] = key
	}
	var unknown []string
	source := env.Provider(".", env.Opt{Prefix: envPrefix, EnvironFunc: environ, TransformFunc: func(name, value string) (string, any) {
		upper := strings.ToUpper(name)
		if key, ok := keys[upper]; ok {
			return key, value
		}
		for key := range fields {
			section, _, _ := strings.Cut(key, ".")
			if variable := variableOf(section); upper == variable || strings.HasPrefix(upper, variable+"_") {
				unknown = append(unknown, name)
				break
			}
		}
		return "", nil // variables of other commands, such as BACKBONE_TOKEN
	}})
	if err := k.Load(source, nil); err != nil {
		return Config{}, &Error{Problem: "cannot read the environment; correct the variables that begin with " + envPrefix, cause: err}
	}
	if len(unknown) > 0 {
		return Config{}, &Error{Key: slices.Min(unknown), Problem: "is not a setting; see backbone.example.yaml"}
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !k.Exists(key) || k.Get(key) == nil {
			continue
		}
		if expected := assign(fields[key], k.Get(key)); expected != "" {
			return Config{}, &Error{Key: key, Problem: "must be " + expected}
		}
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// fieldsOf maps keys such as "http.listen" to the fields of c.
func fieldsOf(c *Config) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	root := reflect.ValueOf(c).Elem()
	for i := range root.NumField() {
		addFields(out, root.Type().Field(i).Tag.Get("config"), root.Field(i))
	}
	return out
}

// addFields adds the fields of a section, those of embedded structs among them.
func addFields(out map[string]reflect.Value, name string, section reflect.Value) {
	for i := range section.NumField() {
		if field := section.Type().Field(i); field.Anonymous {
			addFields(out, name, section.Field(i))
		} else {
			out[name+"."+field.Tag.Get("config")] = section.Field(i)
		}
	}
}

func hasSection(fields map[string]reflect.Value, section string) bool {
	for key := range fields {
		if strings.HasPrefix(key, section+".") {
			return true
		}
	}
	return false
}

// variableOf turns http.read_timeout into BACKBONE_HTTP_READ_TIMEOUT.
func variableOf(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// refuseUnknownKeys returns an error if the file has a key that is no setting. Without it, a
// misspelt limit would be ignored silently.
func refuseUnknownKeys(k *koanf.Koanf, fields map[string]reflect.Value) error {
	for _, key := range k.Keys() { // in order
		if _, ok := fields[key]; ok {
			continue
		}
		if hasSection(fields, key) && k.Get(key) == nil {
			continue // an empty section
		}
		return &Error{Key: key, Problem: "is not a setting; see backbone.example.yaml"}
	}
	return nil
}

// assign sets a field to a value of the file or the environment. For a value of the wrong type
// it returns a description of the expected one.
func assign(field reflect.Value, value any) (expected string) {
	text, isText := value.(string)
	switch field.Interface().(type) {
	case string, DSN:
		if !isText {
			return "text; put it in quotes"
		}
		field.SetString(text)
	case int:
		n, ok := value.(int)
		if isText {
			var err error
			n, err = strconv.Atoi(strings.TrimSpace(text))
			ok = err == nil
		}
		if !ok {
			return "a whole number, such as 100"
		}
		field.SetInt(int64(n))
	case bool:
		b, ok := value.(bool)
		if isText {
			var err error
			b, err = strconv.ParseBool(strings.TrimSpace(text))
			ok = err == nil
		}
		if !ok {
			return "true or false"
		}
		field.SetBool(b)
	case time.Duration:
		d, ok := duration(value)
		if !ok {
			return "a duration with its unit, such as 500ms or 24h"
		}
		field.SetInt(int64(d))
	case []time.Duration:
		parts, ok := elements(value)
		out := make([]time.Duration, len(parts))
		for i, part := range parts {
			var parsed bool
			out[i], parsed = duration(part)
			ok = ok && parsed
		}
		if !ok {
			return "a list of durations, such as [50ms, 200ms]"
		}
		field.Set(reflect.ValueOf(out))
	case []string:
		parts, ok := elements(value)
		var out []string
		for _, part := range parts {
			text, isText := part.(string)
			out = append(out, strings.TrimSpace(text))
			ok = ok && isText
		}
		if !ok {
			return "a list of texts, such as [a.example.org, b.example.org]"
		}
		field.Set(reflect.ValueOf(out))
	default:
		return fmt.Sprintf("of a type that can be set, not %s", field.Type())
	}
	return ""
}

// elements returns the elements of a list of the file, or those of a text of the environment,
// which commas separate.
func elements(value any) (parts []any, ok bool) {
	text, isText := value.(string)
	if !isText {
		parts, ok = value.([]any)
		return parts, ok
	}
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) != "" {
			parts = append(parts, part)
		}
	}
	return parts, true
}

func duration(value any) (time.Duration, bool) {
	text, ok := value.(string)
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(strings.TrimSpace(text))
	return d, err == nil
}
