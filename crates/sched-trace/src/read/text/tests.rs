//! Tests of lines as the tools print them.

use super::*;
use crate::latency::analyse;
use crate::{Kind, Task, TaskState, Wake};

const SAMPLE: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 7/9   #P:2
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
     my [1] prog-77      [000] d..2.  100.000100: workqueue_queue_work: work struct=00000000deadbeef function=do_it workqueue=my wq req_cpu=8192 cpu=0
     my [1] prog-77      ( 70) [000] d..2.  100.000101: sched_waking: comm=kworker/0:1 pid=9 prio=120 target_cpu=000
 my [1] prog-77      [000] d..2.  100.000110: sched_switch: prev_comm=my [1] prog prev_pid=77 prev_prio=120 prev_state=R+ ==> next_comm=kworker/0:1 next_pid=9 next_prio=120
     kworker/0:1-9       [000] ...1.  100.000111: workqueue_execute_start: work struct 00000000deadbeef: function do_it
     kworker/0:1-9       [000] ...1.  100.000115: workqueue_execute_end: work struct 00000000deadbeef: function do_it
CPU:1 [LOST 4 EVENTS]
     kworker/0:1-9       [000] d..2.  100.000120: sched_switch: prev_comm=kworker/0:1 prev_pid=9 prev_prio=120 prev_state=I ==> next_comm=my [1] prog next_pid=77 next_prio=120
          <idle>-0       [001] d..1.  100.000130: some_other_event: whatever
";

fn parse(text: &str) -> Result<Trace, Fault> {
    read(text.as_bytes(), ReadOptions::default())
}

#[test]
fn names_with_spaces_and_brackets_are_read() {
    let trace = parse(SAMPLE).unwrap();
    assert_eq!(trace.events.len(), 6);
    assert_eq!(trace.lost_events, 2 + 4);
    assert_eq!(trace.threads[&77].tgid, 70);
    let report = analyse(&trace);
    assert_eq!(
        (report.waits.len(), report.left_out),
        (0, 2),
        "CPU 1 lost events all the time"
    );
    let report = analyse(&parse(&SAMPLE.replace("CPU:1 [LOST 4 EVENTS]\n", "")).unwrap());
    let waits = report.waits.iter().map(|wait| (wait.pid, wait.length_ns()));
    assert_eq!(waits.collect::<Vec<_>>(), [(9, 9_000), (77, 10_000)]);
    let group = &report.workqueues(&Default::default())[0];
    assert_eq!(report.names.get(group.workqueue.unwrap()), "my wq");
    assert_eq!(report.names.get(group.function.unwrap()), "do_it");
    assert_eq!(group.queue_delay.total, 11.0);
}

#[test]
fn names_that_resemble_fields_are_read_whole() {
    let trace = parse(
        "x-5 [000] d..2. 1.000001: sched_waking: comm=a pid=1 prio=2 pid=9 prio=120 target_cpu=000\n\
         x-5 [000] d..2. 1.000002: sched_switch: prev_comm=x prev_pid=3 ==> prev_pid=5 prev_prio=120 \
         prev_state=S ==> next_comm=a pid=1 prio=2 next_pid=9 next_prio=120\n\
         a-9 [000] d..2. 1.000003: sched_process_exit: comm=a pid=1 prio=2 pid=9 prio=98\n",
    )
    .unwrap();
    let task = |comm: &str, pid, prio| Task {
        comm: comm.into(),
        pid,
        prio,
    };
    let waking = Kind::Wake {
        wake: Wake::Begins,
        task: task("a pid=1 prio=2", 9, 120),
        target_cpu: 0,
    };
    let switch = Kind::Switch {
        prev: task("x prev_pid=3 ==>", 5, 120),
        prev_state: TaskState::SLEEPING,
        next: task("a pid=1 prio=2", 9, 120),
    };
    let exit = Kind::Exit {
        task: task("a pid=1 prio=2", 9, 98),
    };
    let kinds: Vec<Kind> = trace.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [waking, switch, exit]);
}

#[test]
fn names_that_resemble_marks_lose_nothing() {
    for name in ["lost and found", "cpu [lost]", "#1"] {
        let text = format!(
            "{name}-5 [000] d..2. 1.000001: sched_waking: comm=a pid=9 prio=120 target_cpu=000\n"
        );
        let trace = parse(&text).unwrap();
        assert_eq!((trace.events.len(), trace.lost_events), (1, 0), "{name}");
    }
}

#[test]
fn a_wrapped_ring_counts_from_where_all_cpus_have_events() {
    let line =
        |cpu: u32, us: u32, fields: &str| format!("x-5 [00{cpu}] d..2. 1.{us:06}: {fields}\n");
    let waking = "sched_waking: comm=b pid=9 prio=120 target_cpu=000";
    let switch = "sched_switch: prev_comm=x prev_pid=5 prev_prio=120 prev_state=S ==> \
                  next_comm=b next_pid=9 next_prio=120";
    let rest = line(0, 10, waking) + &line(1, 20, waking) + &line(0, 30, switch);
    let head = "# entries-in-buffer/entries-written: 3/9   #P:2\n";
    let trace = parse(&format!("{head}{rest}")).unwrap();
    assert_eq!((trace.events.len(), trace.lost_events), (2, 0));
    let report = analyse(&trace);
    assert!(report.is_valid());
    // The wait begins with the remaining `sched_waking`.
    assert_eq!(report.waits[0].length_ns(), 10_000);
    let notice = trace.notices[0].to_string();
    let begin = "overwrote 6 older events: figures begin at 1.000020 s";
    assert!(notice.contains(begin), "{notice}");
    // Events are missing in the middle as well.
    let lost = parse(&format!("{head}CPU:1 [LOST EVENTS]\n{rest}")).unwrap();
    assert_eq!((lost.events.len(), lost.lost_events), (3, 7));
}

#[test]
fn the_text_of_perf_script_is_read() {
    let text = "my prog  1230/77  [000]   100.000100101:             sched:sched_waking: comm=kworker/0:1 pid=9 prio=120 target_cpu=000\n\
         swapper     0/0     [000]   100.000110101:             sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=kworker/0:1 next_pid=9 next_prio=120\n\
         kworker/0:1-ev     9 [000]   100.000111000: workqueue:workqueue_execute_start: work struct 0xffff88: function do_it\n\
         swapper     0/0     [001]   100.000112000: PERF_RECORD_LOST lost 12\n";
    let trace = parse(text).unwrap();
    let pids: Vec<i32> = trace.events.iter().map(|event| event.pid).collect();
    assert_eq!((pids, trace.lost_events), (vec![77, 0, 9], 12));
    assert_eq!(trace.threads[&77].tgid, 1230);
    let whole = text.lines().take(3).map(|line| format!("{line}\n"));
    let trace = parse(&whole.collect::<String>()).unwrap();
    assert_eq!(analyse(&trace).waits[0].length_ns(), 10_000);
}

#[test]
fn what_cannot_be_read_is_refused_with_the_remedy() {
    let waking = "sched_waking: comm=b pid=9 prio=120 target_cpu=000";
    for (line, remedy) in [
        (format!("a-1 [000] d..2. 345678901234: {waking}"), "-C mono"),
        (
            "a-1 [000] 1.000001: sched_switch: a:1 [120] ==> swapper/0:0 [120]".into(),
            "-R",
        ),
    ] {
        match parse(&format!("{line}\n")) {
            Err(Fault::Broken { reason, .. }) => assert!(reason.contains(remedy), "{reason}"),
            read => panic!("{read:?}"),
        }
    }
}

/// Lines of trace-cmd 3.4, with and without -R.
#[test]
fn the_raw_text_of_trace_cmd_has_the_events_of_the_usual_text() {
    let raw = "a-5 [000]-0x35  2.324034: sched_waking:   comm=rcu pid=29 prio=120 target_cpu=000
a-5 [000]-0x1  2.324059: sched_switch:   prev_comm=a prev_pid=5 prev_prio=120 prev_state=256 next_comm=rcu next_pid=29 next_prio=120
a-5 [001]-0x35  2.328032: workqueue_queue_work:  work=0xffff8881024f3248 function=wb_update (0xffffffff815bdda0) workqueue=writeback req_cpu=256 cpu=-1
k-6 [001]-0x0  2.328048: workqueue_execute_start:  work=0xffff8881024f3248 function=wb_update (0xffffffff815bdda0)
k-6 [001]-0x0  2.328050: workqueue_execute_end:  work=0xffff8881024f3248 function=wb_update (0xffffffff815bdda0)
k-6 [001]-0x0  2.334183: task_newtask:  pid=76 comm=sh clone_flags=3d0f00 oom_score_adj=0
k-6 [001]-0x0  2.344938: sched_process_exit:  comm=seq pid=86 prio=120 group_dead=1
k-6 [001]-0x0  2.353510: task_rename:  pid=85 oldcomm=trace-cmd newcomm=sh oom_score_adj=0
";
    let usual = "a-5 [000] dNs2.  2.324034: sched_waking:   comm=rcu pid=29 prio=120 target_cpu=000
a-5 [000] d..2.  2.324059: sched_switch: prev_comm=a prev_pid=5 prev_prio=120 prev_state=R+ ==> next_comm=rcu next_pid=29 next_prio=120
a-5 [001] dNs1.  2.328032: workqueue_queue_work: work struct=0xffff8881024f3248 function=wb_update workqueue=writeback req_cpu=256 cpu=-1
k-6 [001] .....  2.328048: workqueue_execute_start: work struct 0xffff8881024f3248: function wb_update
k-6 [001] .....  2.328050: workqueue_execute_end: work struct 0xffff8881024f3248: function wb_update
k-6 [001] .....  2.334183: task_newtask: pid=76 comm=sh clone_flags=3d0f00 oom_score_adj=0
k-6 [001] .....  2.344938: sched_process_exit: comm=seq pid=86 prio=120 group_dead=true
k-6 [001] .....  2.353510: task_rename: pid=85 oldcomm=trace-cmd newcomm=sh oom_score_adj=0
";
    let (raw, usual) = (parse(raw).unwrap(), parse(usual).unwrap());
    assert_eq!((raw.events.len(), raw.events), (8, usual.events));
}

#[test]
fn text_without_events_or_with_cut_ones_is_an_error() {
    assert!(parse("# tracer: nop\n#\n").is_err());
    let cut = &SAMPLE[..SAMPLE.find("next_pid=9").unwrap()];
    assert!(parse(cut).is_err());
}

#[test]
fn any_cut_never_panics() {
    for end in 0..SAMPLE.len() {
        let _ = parse(&SAMPLE[..end]);
    }
}
