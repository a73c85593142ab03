#!/bin/sh
test_description='Custom functions in the service: what they get, and what becomes of their answer'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

test_expect_success 'a function has an open handle of this instance' '
	cat >handle.yaml <<-EOD &&
	jobs:
	  - {name: echo, command: echo hello}
	rules:
	  - {trigger: start, action: {name: custom, label: look}}
	custom: |
	  import os
	  def look(handle, **kwargs):
	      assert handle.attr_get("local-uri") == os.environ["FLUX_URI"]
	      size = int(handle.attr_get("size"))
	      return Action({"name": "submit", "label": "echo", "count": size})
	EOD
	flux ensemble run handle.yaml &&
	is 2/0/0/0 "$(counts_of handle echo)"
'

test_expect_success 'it has the environment and the directory of whoever loaded the document' '
	mkdir -p here/documents &&
	cat >here/documents/place.yaml <<-EOD &&
	jobs:
	  - {name: echo, command: echo hello}
	rules:
	  - {trigger: start, action: {name: custom, label: look}}
	custom: |
	  import os
	  def look(ensemble, **kwargs):
	      with open("found", "w") as file:
	          print(os.environ["COLOUR"], ensemble["name"], ensemble["directory"], file=file)
	EOD
	(cd here && COLOUR=red flux ensemble run documents/place.yaml) &&
	is "red place $PWD/here/documents" "$(cat here/found)"
'

test_expect_success 'what it prints is in the log of the ensemble' '
	cat >prints.yaml <<-EOD &&
	jobs:
	  - {name: echo, command: echo hello}
	rules:
	  - {trigger: start, action: {name: custom, label: look}}
	custom: |
	  def look(**kwargs):
	      print("looked around")
	      print("and saw nothing")
	EOD
	flux ensemble run prints.yaml &&
	flux ensemble log prints >log &&
	grep "custom-output  *look:" log &&
	grep "^  *looked around" log &&
	grep "^  *and saw nothing" log &&
	flux-ensemble run --queue local --state-dir state prints.yaml &&
	flux-ensemble log --state-dir state prints | grep "looked around"
'

test_expect_success 'a rule that it returns is added and acts' '
	cat >adds.yaml <<-EOD &&
	jobs:
	  - {name: first, command: /bin/true}
	  - {name: second, command: /bin/true}
	rules:
	  - {trigger: start, action: {name: custom, label: add}}
	  - {trigger: start, action: {name: submit, label: first}}
	custom: |
	  def add(**kwargs):
	      return [Rule({
	          "trigger": "metric",
	          "name": "count.first.success",
	          "when": 1,
	          "action": {"name": "submit", "label": "second"},
	      })]
	EOD
	flux ensemble run adds.yaml &&
	is 1/0/0/0 "$(counts_of adds second)"
'

test_expect_success 'plugins beside the document are found' '
	cat >beside.py <<-EOD &&
	from flux_ensemble import Action
	def again(metrics, **kwargs):
	    if metrics["count"]["echo"]["success"] == 1:
	        return Action(name="submit", label="echo")
	EOD
	cat >plugin.yaml <<-EOD &&
	plugins: [beside]
	jobs:
	  - {name: echo, command: echo hello}
	rules:
	  - {trigger: start, action: {name: submit, label: echo}}
	  - trigger: job-success
	    action: {name: custom, label: again, repetitions: unlimited}
	EOD
	flux ensemble run plugin.yaml &&
	is 2/0/0/0 "$(counts_of plugin echo)"
'

test_expect_success 'a function that no plugin has is refused at load, with the names that there are' '
	sed "s/label: again/label: agian/" plugin.yaml >missing.yaml &&
	test_expect_code 2 flux ensemble run missing.yaml 2>err &&
	grep "missing.yaml: custom functions cannot be called: .agian. does not exist" err &&
	grep "did you mean .again.?" err &&
	test_expect_code 2 flux ensemble load missing.yaml &&
	flux ensemble list -n -o {name} >names &&
	test_must_fail grep missing names
'

test_expect_success 'so is a plugin that cannot be imported' '
	sed "s/beside/elsewhere/" plugin.yaml >import.yaml &&
	test_expect_code 2 flux ensemble run import.yaml 2>err &&
	grep "plugin .elsewhere. is not there" err &&
	echo "1 / 0" >broken.py &&
	sed "s/beside/broken/" plugin.yaml >import.yaml &&
	test_expect_code 2 flux ensemble run import.yaml 2>err &&
	grep "plugin .broken. raised ZeroDivisionError" err &&
	grep "broken.py.*line 1" err
'

test_expect_success 'an ensemble that has ended is kept where the next of its name is refused' '
	flux ensemble run --name plugin plugin.yaml &&
	test_expect_code 2 flux ensemble run --name plugin missing.yaml &&
	is 2/0/0/0 "$(counts_of plugin echo)"
'

test_expect_success 'validate imports no plugin' '
	flux ensemble validate import.yaml &&
	flux ensemble validate missing.yaml
'

test_expect_success 'while a plugin is being imported the service answers, and the name is taken' '
	mkfifo gate started &&
	cat >slow.py <<-EOD &&
	open("started", "w").close()
	open("gate").read()
	def again(**kwargs): pass
	EOD
	sed "s/beside/slow/" plugin.yaml >slow.yaml &&
	{ flux ensemble load slow.yaml >loaded & } &&
	pid=$! &&
	cat started &&
	flux ensemble status plugin &&
	test_must_fail flux ensemble load slow.yaml 2>err &&
	grep "named .slow. is being loaded already" err &&
	echo >gate &&
	wait $pid &&
	is slow "$(cat loaded)" &&
	flux ensemble wait --timeout=300 slow
'

test_expect_success 'a service that is removed meanwhile refuses the document' '
	{ flux ensemble load --name late slow.yaml 2>err & } &&
	pid=$! &&
	cat started &&
	flux module remove ensemble &&
	test_must_fail wait $pid &&
	grep "shutting down" err
'

test_expect_success 'what functions print is in the log of Flux' '
	cat >words.yaml <<-EOD &&
	jobs:
	  - {name: echo, command: echo hello}
	rules:
	  - {trigger: start, action: {name: custom, label: say}}
	custom: |
	  def say(**kwargs): print("a word")
	EOD
	flux ensemble run words.yaml &&
	flux dmesg | grep "words: say: a word"
'

test_done
