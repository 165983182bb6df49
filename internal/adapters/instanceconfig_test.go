package adapters_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/plugin"
)

// violated returns what was said of each field.
func violated(t testing.TB, err error) map[string]string {
	t.Helper()
	out := map[string]string{}
	var ce *connect.Error
	if !errors.As(err, &ce) {
		t.Fatalf("want an error with details, got %v", err)
	}
	for _, d := range ce.Details() {
		v, err := d.Value()
		if err != nil {
			t.Fatal(err)
		}
		if bad, ok := v.(*errdetails.BadRequest); ok {
			for _, f := range bad.FieldViolations {
				out[f.Field] = f.Description
			}
		}
	}
	return out
}

// A configuration is shown without its secrets, changed in part with them kept, and refused
// field by field.
func TestInstanceConfig(t *testing.T) {
	t.Parallel()
	for _, pg := range []bool{false, true} {
		t.Run(map[bool]string{false: "sqlite", true: "postgres"}[pg], func(t *testing.T) {
			t.Parallel()
			a := apptest.Start(t, apptest.Options{Postgres: pg, Config: func(c *app.Config) {
				own := command("7", false)
				own.Name = "own"
				c.Adapters.Plugins = []plugin.Config{command("7", true), own}
			}})
			ctx := t.Context()
			apptest.Until(t, "the plug-in says what it is", func() bool {
				p, err := a.Admin.Adapters.GetPlugin(ctx, &adaptersv1.GetPluginRequest{Name: "made"})
				return err == nil && p.ConfigSchema != ""
			})
			const center = "cfg"
			_, err := a.Admin.Adapters.CreateInstance(ctx, &adaptersv1.CreateInstanceRequest{Plugin: "made", AiCenterId: center,
				Config: `{"nonsense":1,"longitude":"far","prices":{"small":"dear"},"labels":{"a":5}}`})
			got := violated(t, err)
			for field, says := range map[string]string{"config.password": "required", "config.nonsense": "not known", "config.longitude": "type", "config.prices.small": "type", "config.labels.a": "type"} {
				if !strings.Contains(got[field], says) {
					t.Errorf("%s: %q, want %q; all: %v", field, got[field], says, got)
				}
			}
			if _, err := a.Admin.Adapters.CreateInstance(ctx, &adaptersv1.CreateInstanceRequest{Plugin: "made", AiCenterId: center,
				Config: `{"password":"hunter22","region":"r","prices":{"small":10},"labels":{"access_token":"t0p"}}`}); err != nil {
				t.Fatal(err)
			}
			show := func() map[string]any {
				t.Helper()
				in, err := a.Admin.Adapters.GetInstance(ctx, &adaptersv1.GetInstanceRequest{Plugin: "made", AiCenterId: center})
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(in.Config, "hunter") || strings.Contains(in.Config, "t0p") || in.Origin != adaptersv1.InstanceOrigin_INSTANCE_ORIGIN_API {
					t.Errorf("shown: %v", in)
				}
				var v map[string]any
				if err := json.Unmarshal([]byte(in.Config), &v); err != nil {
					t.Fatal(err)
				}
				return v
			}
			if v := show(); v["password"] != "(secret)" || v["region"] != "r" || v["labels"].(map[string]any)["access_token"] != "(secret)" {
				t.Errorf("shown as %v", v)
			}
			// The driver shows how long its secret is.
			secret := func(want string) {
				t.Helper()
				apptest.Until(t, "the driver has a secret of length "+want, func() bool {
					c, err := a.Registry.GetCenter(ctx, center)
					return err == nil && c.Labels["secret-length"] == want
				})
			}
			secret("8")
			update := func(config, patch *string) error {
				_, err := a.Admin.Adapters.UpdateInstance(ctx, &adaptersv1.UpdateInstanceRequest{Plugin: "made", AiCenterId: center, Config: config, ConfigPatch: patch})
				return err
			}
			str := func(s string) *string { return &s }
			for range 2 {
				if err := update(nil, str(`{"region":"s","prices":{"small":null,"medium":5}}`)); err != nil {
					t.Fatal(err)
				}
			}
			if v := show(); v["region"] != "s" || v["password"] != "(secret)" || len(v["prices"].(map[string]any)) != 1 {
				t.Errorf("patched to %v", v)
			}
			secret("8")
			// What is shown can be sent back.
			whole, err := json.Marshal(show())
			if err != nil {
				t.Fatal(err)
			}
			if err := update(str(string(whole)), nil); err != nil {
				t.Fatal(err)
			}
			secret("8")
			if err := update(nil, str(`{"password":"longer secret"}`)); err != nil {
				t.Fatal(err)
			}
			secret("13")
			for name, c := range map[string]struct {
				config, patch *string
				field, says   string
			}{
				"both":              {str(`{}`), str(`{}`), "config_patch", "together"},
				"no object":         {nil, str(`[1]`), "config_patch", "JSON object"},
				"no JSON":           {nil, str(`{`), "config_patch", "JSON object"},
				"a secret of none":  {nil, str(`{"region":"(secret)","labels":{"x":"(secret)"}}`), "config_patch.labels.x", "there was none"},
				"what is needed":    {nil, str(`{"password":null}`), "config.password", "required"},
				"of the wrong type": {nil, str(`{"security_grade":"high"}`), "config.security_grade", "type"},
			} {
				if got := violated(t, update(c.config, c.patch)); !strings.Contains(got[c.field], c.says) {
					t.Errorf("%s: %v, want %s: %q", name, got, c.field, c.says)
				}
			}
			if v := show(); v["region"] != "s" {
				t.Errorf("after refusals it is %v", v)
			}

			// Where an instance comes from is said, and there is nothing to show of others.
			var own *adaptersv1.Instance
			apptest.Until(t, "the one of the configuration file serves", func() bool {
				list := get(t, a, "own").List
				if len(list) == 1 {
					own = list[0]
				}
				return own != nil && own.AiCenterId != ""
			})
			in, err := a.Admin.Adapters.GetInstance(ctx, &adaptersv1.GetInstanceRequest{Plugin: "own", AiCenterId: own.AiCenterId})
			if err != nil || in.Origin != adaptersv1.InstanceOrigin_INSTANCE_ORIGIN_CONFIGURATION || in.Config != "" {
				t.Errorf("of the configuration file: %v, %v", in, err)
			}
			if err := update(nil, nil); err != nil {
				t.Errorf("a change of nothing: %v", err)
			}
			_, err = a.Admin.Adapters.GetInstance(ctx, &adaptersv1.GetInstanceRequest{Plugin: "made", AiCenterId: "nowhere"})
			wantCode(t, "of a center there is not", err, connect.CodeNotFound, "no instance")
		})
	}
}
